/*
 * What the host captures beside a session is neither broken nor left out of
 * the order of slots.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

static const char *const no_driver[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_ENABLE=0",
                                         "GRAPHHOOKS_DRIVER=/nonexistent",
                                         NULL };

static void begin_on(CUstream stream)
{
    is_int(toy.drv.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
           CUDA_SUCCESS, "the host begins a capture of its own");
}

/* The host has had one stream so far, so nothing has marked its work. */
static void test_a_slot_whose_stream_is_captured_is_passed_over(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(0, s[0]);
    begin_on(s[0]);
    is_int(run(0, FORWARD, 1, s[1]).slot, 1,
           "a flight on another stream gets the next slot");
    run(0, BACKWARD, 1, s[1]);
    is_int(end_capture(s[0]), CUDA_SUCCESS, "the host's capture is whole");
    is_int(run(0, FORWARD, 2, s[1]).slot, 0,
           "once it has ended, the first slot is to be had");
    is_int(toy_races(&toy), 0, "and is waited for");
    toy_close(&toy);
}

static void is_refused(const char *what)
{
    err.text[0] = '\0';
    is_int(run(0, FORWARD, 7, toy.streams[1]).action, (long)UINT32_MAX,
           "%s: a flight on another stream is refused", what);
    ok(strstr(err.text, "end the capture first") != NULL, "and told why: %s",
       err.text);
    end_capture(toy.streams[0]);
    is_int(run(0, FORWARD, 7, toy.streams[1]).slot, 0,
           "once the capture has ended, it has the slot");
    is_int(toy_races(&toy), 0, "and waits for who had it");
    toy_close(&toy);
}

static void test_without_another_slot_the_flight_is_refused(void)
{
    const struct toy_options one = { .layers = 1, .max_slots = 1 };
    CUstream *s = toy.streams;

    if (!start(one)) {
        return;
    }
    run_both(0, s[0]);
    begin_on(s[0]);
    is_refused("a capture that begins after a flight");

    if (!start(one)) {
        return;
    }
    run_both(0, s[1]);
    run_both(1, s[0]);
    begin_on(s[0]);
    run_both(2, s[0]);
    is_refused("a capture with a whole flight in it");

    if (!start(one)) {
        return;
    }
    run_both(0, s[1]);
    run(0, FORWARD, 1, s[0]);
    begin_on(s[0]);
    run(0, BACKWARD, 1, s[0]);
    is_int(run(0, FORWARD, 7, s[1]).action, (long)UINT32_MAX,
           "a capture with half a flight in it: the next one is refused");
    end_capture(s[0]);
    is_int(run(0, FORWARD, 7, s[1]).action, (long)UINT32_MAX,
           "also when it has ended, as the host launches it when it likes");
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 7, s[1]).slot, 0, "until the step has ended");
    toy_close(&toy);
}

static void is_out_of_reach(const char *what)
{
    is_int(run(0, FORWARD, 7, toy.streams[1]).action, (long)UINT32_MAX,
           "%s: a flight on another stream is refused", what);
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 7, toy.streams[1]).slot, 0,
           "%s: until the step has ended", what);
    toy_close(&toy);
}

/* The slot remembers it, though the flight's last pass is not captured. */
static void test_a_pass_in_the_middle_is_captured(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 2, .max_slots = 1 })) {
        return;
    }
    run_both(0, s[1]);
    run(0, FORWARD, 1, s[0]);
    run(1, FORWARD, 1, s[0]);
    begin_on(s[0]);
    run(1, BACKWARD, 1, s[0]);
    end_capture(s[0]);
    run(0, BACKWARD, 1, s[0]);
    is_out_of_reach("a captured pass in the middle of a flight");
}

/* A disabled session goes on without a slot, and refuses nothing. */
static void captured_while_disabled(uint32_t captured, const char *what)
{
    static const char *const disabled[] = { "GRAPHHOOKS_LOG=off",
                                            "GRAPHHOOKS_ENABLE=0", NULL };
    CUstream *s = toy.streams;

    if (!start((struct toy_options){
            .layers = 1, .max_slots = 1, .environment = disabled })) {
        return;
    }
    run_both(0, s[1]);
    run(0, FORWARD, 1, s[0]);
    begin_on(s[captured]);
    run(0, BACKWARD, 1, s[captured]);
    end_capture(s[captured]);
    is_int(run(0, FORWARD, 7, s[1]).slot, (long)GH_SLOT_NONE,
           "%s: a flight on another stream has no slot", what);
    run(0, BACKWARD, 7, s[1]);
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 7, s[1]).slot, 0, "%s: until the step has ended",
           what);
    toy_close(&toy);
}

static void test_a_disabled_session_is_captured(void)
{
    captured_while_disabled(0, "a captured last pass of a disabled session");
    captured_while_disabled(2, "one that is on a stream of its own");
}

/* What the stream issues now comes after its own graph, or with it. */
static void test_a_stream_follows_what_it_captured(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1, .max_slots = 2 })) {
        return;
    }
    run(0, FORWARD, 0, s[1]);
    run(0, FORWARD, 1, s[0]);
    for (uint32_t m = 0; m < 2; m++) {
        begin_on(s[1 - m]);
        run(0, BACKWARD, m, s[1 - m]);
        end_capture(s[1 - m]);
    }
    is_int(run(0, FORWARD, 2, s[0]).slot, 1,
           "of two slots with captured work a stream has its own");
    toy_close(&toy);
}

/* The stream that the flight came from does not know when that graph runs. */
static void test_a_flight_that_moves_into_a_capture(void)
{
    CUstream *s = toy.streams;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;

    if (!start((struct toy_options){ .layers = 1, .max_slots = 2 })) {
        return;
    }
    run(0, FORWARD, 0, s[0]);
    go_over(s[0], s[2]);
    begin_on(s[2]);
    run(0, BACKWARD, 0, s[2]);
    is_int(toy.drv.cuStreamEndCapture(s[2], &graph), CUDA_SUCCESS,
           "a flight moves into the host's capture, which stays whole");
    is_int(run(0, FORWARD, 1, s[0]).slot, 1,
           "its slot is not given to the stream that it began on");
    run(0, BACKWARD, 1, s[0]);
    toy.drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    is_int(toy.drv.cuGraphLaunch(exec, s[2]), CUDA_SUCCESS,
           "the host launches what it has captured, when it likes");
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 2, s[0]).slot, 0, "in the next step it is to be had");
    is_int(toy_races(&toy), 0, "and waits for both streams");
    toy.drv.cuCtxSynchronize();
    toy.drv.cuGraphExecDestroy(exec);
    toy.drv.cuGraphDestroy(graph);
    toy_close(&toy);
}

/* It may run there and then, so the next flight can wait for it. */
static void test_a_driver_that_does_not_say_captures_nothing(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    run_both(0, s[1]);
    run(0, FORWARD, 1, s[0]);
    toy_configure(&toy, "SEED=0 FAIL=cuStreamIsCapturing:1");
    is_int(run(0, BACKWARD, 1, s[0]).reason, GH_REASON_HOST_CAPTURE,
           "where the driver does not say, a pass is eager");
    is_int(run(0, FORWARD, 2, s[1]).slot, 0,
           "and the next flight on another stream has its slot");
    toy_close(&toy);
}

/* What the flight before has left is not this one's. */
static void test_a_captured_flight_has_a_beginning(void)
{
    const gh_border_key key = { .struct_size = sizeof(key),
                                .segment = 1,
                                .direction = FORWARD,
                                .tensor = GH_TENSOR_HIDDEN };
    CUstream *s = toy.streams;
    struct io io = { .n_outputs = 1, .value = 7 };
    gh_buffer out, found;

    if (!start((struct toy_options){ .layers = 2, .max_slots = 1 })) {
        return;
    }
    out = buffer(1, 256, 0);
    out.tensor = GH_TENSOR_HIDDEN;
    io.outputs = &out;
    begin_on(s[0]);
    run(0, FORWARD, 0, s[0]);
    run_with(1, FORWARD, 0, s[0], &io);
    is_int(gh_border_find(toy.session, &key, &found, NULL), GH_OK,
           "what a captured flight has left is found");
    run(1, BACKWARD, 0, s[0]);
    run(0, BACKWARD, 0, s[0]);
    run(0, FORWARD, 0, s[0]);
    is_int(gh_border_find(toy.session, &key, &found, NULL), GH_ERR_NOT_FOUND,
           "and not by the next flight of its microbatch");
    end_capture(s[0]);
    toy_close(&toy);
}

/* The host launches what it has captured when it likes. */
static void test_a_captured_flight_has_no_slot(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1, .max_slots = 2 })) {
        return;
    }
    run_both(0, s[1]);
    begin_on(s[0]);
    is_int(run(0, FORWARD, 1, s[0]).slot, (long)GH_SLOT_NONE,
           "a flight that the host captures has no slot");
    is_int(run(0, BACKWARD, 1, s[0]).reason, GH_REASON_HOST_CAPTURE,
           "all of it is the host's");
    is_int(run(0, FORWARD, 2, s[1]).slot, 0,
           "and the next one has what it did not take");
    run(0, BACKWARD, 2, s[1]);
    end_capture(s[0]);
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1,
                                     .flags = GH_SESSION_BUSY_FAILS })) {
        return;
    }
    begin_on(s[0]);
    err.text[0] = '\0';
    is_int(run(0, FORWARD, 0, s[0]).action, (long)UINT32_MAX,
           "a host that cannot go without a slot is refused");
    ok(strstr(err.text, "leave the hooks out of that capture") != NULL,
       "and told why: %s", err.text);
    end_capture(s[0]);
    toy_close(&toy);
}

/* They have no slot because of the capture, also once it is over. */
static void test_later_passes_of_a_captured_flight(void)
{
    static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1,
                                     .scope = "mlp",
                                     .max_slots = 1,
                                     .host = &hearing,
                                     .environment = warning })) {
        return;
    }
    said[0] = '\0';
    begin_on(s[0]);
    run(0, FORWARD, 1, s[0]);
    end_capture(s[0]);
    is_int(run(1, FORWARD, 1, s[0]).reason, GH_REASON_HOST_CAPTURE,
           "a pass after the capture that its flight began in is the host's");
    is_int(times_said("the host was capturing its stream when its microbatch "
                      "began"),
           1, "as is said: %s", said);
    run(1, BACKWARD, 1, s[0]);
    run(0, BACKWARD, 1, s[0]);
    is_int(toy_eager(&toy, GH_REASON_HOST_CAPTURE), 2,
           "so is each that the plan would have captured");
    is_int(toy_eager(&toy, GH_REASON_BUSY), 0, "and none was busy");
    run(0, FORWARD, 0, s[0]);
    run(0, FORWARD, 1, s[0]);
    is_int(run(1, FORWARD, 1, s[0]).reason, GH_REASON_BUSY,
           "the microbatch's next flight has a reason of its own");
    toy_close(&toy);
}

/* Passes that the library would never capture are noted all the same. */
static void test_eager_passes_in_a_capture(void)
{
    static const char *const off[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_ENABLE=0", NULL };
    const struct toy_options partial = { .layers = 1,
                                         .scope = "mlp",
                                         .max_slots = 1 };
    CUstream *s = toy.streams;

    if (!start(partial)) {
        return;
    }
    run(0, FORWARD, 0, s[0]);
    run(1, FORWARD, 0, s[0]);
    run(1, BACKWARD, 0, s[0]);
    begin_on(s[0]);
    is_int(run(0, BACKWARD, 0, s[0]).reason, GH_REASON_PLAN,
           "a pass that is eager in the plan goes into the host's capture");
    end_capture(s[0]);
    is_int(run(0, FORWARD, 1, s[1]).action, (long)UINT32_MAX,
           "its slot is not given to another stream");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1,
                                     .max_slots = 1,
                                     .environment = off })) {
        return;
    }
    run(0, FORWARD, 0, s[0]);
    begin_on(s[0]);
    run(0, BACKWARD, 0, s[0]);
    end_capture(s[0]);
    is_int(run(0, FORWARD, 1, s[1]).slot, (long)GH_SLOT_NONE,
           "with GRAPHHOOKS_ENABLE=0 the next flight goes without a slot");
    toy_close(&toy);
}

/* As an embedding's backward reads what the last pass of a flight has left. */
static void test_results_are_read_after_the_last_pass(void)
{
    CUstream *s = toy.streams;
    gh_buffer out;
    struct io io = { .n_outputs = 1, .value = 7 };

    if (!start((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    out = buffer(1, 256, 0);
    io.outputs = &out;
    run_both(9, s[1]);
    for (uint32_t m = 0; m < 4; m++) {
        run(0, FORWARD, m, s[m & 1]);
        run_with(0, BACKWARD, m, s[m & 1], &io);
        toy.drv.cuMemcpyDtoDAsync((uintptr_t)buffer(4 + m, 256, 0).address,
                                  (uintptr_t)out.address, 256, s[m & 1]);
    }
    is_int(toy_races(&toy), 0,
           "what the host reads before it enters the next pass is waited for");
    toy_close(&toy);
}

static void test_without_a_driver_streams_do_not_share_slots(void)
{
    CUstream *s = toy.streams;

    if (!start(
            (struct toy_options){ .environment = no_driver, .max_slots = 3 })) {
        return;
    }
    for (uint32_t m = 0; m < 6; m++) {
        is_int(run(0, FORWARD, m, s[m & 1]).slot, m & 1,
               "without a driver, microbatch %u has its stream's slot", m);
        run(0, BACKWARD, m, s[m & 1]);
    }
    is_int(run(0, FORWARD, 0, s[2]).slot, 2, "a third stream has the third");
    go_over(s[2], s[0]);
    run(0, BACKWARD, 0, s[0]);
    is_int(run(0, FORWARD, 0, s[2]).slot, (long)GH_SLOT_NONE,
           "after a flight on two streams, neither has it");
    run(0, BACKWARD, 0, s[2]);
    is_int(run(0, FORWARD, 0, s[0]).slot, 0, "the others stay as they were");
    is_int(toy_races(&toy), 0, "and nothing is a race");
    toy_close(&toy);
}

static void test_without_a_driver_busy_fails(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .environment = no_driver,
                                     .max_slots = 1,
                                     .flags = GH_SESSION_BUSY_FAILS })) {
        return;
    }
    run_both(0, s[0]);
    err.text[0] = '\0';
    is_int(run(0, FORWARD, 0, s[1]).action, (long)UINT32_MAX,
           "a host that cannot go without a slot is refused");
    ok(strstr(err.text, "without a driver") != NULL, "and told why: %s",
       err.text);
    toy_close(&toy);
}

/* Passes update a buffer, and are compared. */
static bool start_checked(struct io *io)
{
    static gh_buffer out;

    *io = (struct io){ .outputs = &out, .n_outputs = 1, .value = 7 };
    if (!start((struct toy_options){ .layers = 1, .environment = checked })) {
        return false;
    }
    out = buffer(1, 256, GH_BUFFER_UPDATED);
    return true;
}

/* What a check has compared is waited for: its scratch is to be had. */
static void test_a_check_after_a_check(void)
{
    CUstream *s = toy.streams;
    struct io io;

    if (!start_checked(&io)) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        run_with(0, FORWARD, m, s[m], &io);
        run_with(0, BACKWARD, m, s[m], &io);
    }
    begin_on(s[1]);
    is_int(run_with(0, FORWARD, 2, s[0], &io).reason, GH_REASON_CHECK,
           "beside a capture on the stream of the last check, a pass is "
           "compared");
    run_with(0, BACKWARD, 2, s[0], &io);
    is_int(end_capture(s[1]), CUDA_SUCCESS, "and the capture is whole");
    toy_close(&toy);
}

/* The scratch of a check was last used on the stream that is captured. */
static void test_a_check_beside_a_capture(void)
{
    CUstream *s = toy.streams;
    struct io io;

    if (!start_checked(&io)) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        run_with(0, FORWARD, m, s[m], &io);
        run_with(0, BACKWARD, m, s[m], &io);
        toy.drv.cuCtxSynchronize();
    }
    run_with(0, FORWARD, 2, s[1], &io);
    toy_configure(&toy, "SEED=0 FAIL=cuMemsetD8Async:1");
    run_with(0, BACKWARD, 2, s[1], &io); /* ends without comparing */
    begin_on(s[1]);
    is_int(run_with(0, FORWARD, 3, s[0], &io).action, GH_ACTION_REPLAYED,
           "without its scratch a check lets the graph's result stand");
    run_with(0, BACKWARD, 3, s[0], &io);
    is_int(end_capture(s[1]), CUDA_SUCCESS,
           "a check on one stream leaves a capture of another whole");
    toy_close(&toy);
}

static CUstreamCaptureMode mode_of_the_thread(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

    toy.drv.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

/* Recording allocates and instantiates, which the driver would refuse. */
static void test_a_recording_beside_the_hosts_capture(void)
{
    CUstream *s = toy.streams;
    struct io io = { .n_inputs = 1 };
    gh_buffer in;

    for (int mode = 0; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        if (!start((struct toy_options){ .layers = 1 })) {
            return;
        }
        in = buffer(0, 256, 0);
        io.inputs = &in;
        toy.drv.cuStreamBeginCapture(s[0], mode);
        is_int(run_with(0, FORWARD, 0, s[1], &io).action, GH_ACTION_RECORD,
               "beside a capture of mode %d a pass is recorded", mode);
        run(0, BACKWARD, 0, s[1]);
        is_int(end_capture(s[0]), CUDA_SUCCESS,
               "mode %d: the host's capture is whole", mode);
        is_int(run_with(0, FORWARD, 1, s[1], &io).action, GH_ACTION_REPLAYED,
               "mode %d: and the pass is replayed", mode);

        toy.drv.cuStreamBeginCapture(s[0], mode);
        toy_detach(&toy);
        is_int(end_capture(s[0]), CUDA_SUCCESS,
               "mode %d: closing the session does not break one either", mode);
        is_int(toy_counts(&toy).device_allocations, 1,
               "mode %d: and frees what it had", mode);
        is_int(mode_of_the_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL,
               "mode %d: the thread's own mode is as it was", mode);
        toy_close(&toy);
    }
}

static void test_a_mode_that_cannot_be_exchanged(void)
{
    for (uint32_t n = 1; n <= 6; n++) {
        char settings[64];

        if (!start((struct toy_options){ .layers = 1 })) {
            return;
        }
        snprintf(settings, sizeof(settings),
                 "FAIL=cuThreadExchangeStreamCaptureMode:%u", n);
        toy_configure(&toy, settings);
        run_both(0, toy.streams[0]);
        toy_detach(&toy);
        is_int(mode_of_the_thread(), CU_STREAM_CAPTURE_MODE_GLOBAL,
               "call %u fails: the thread's mode is as it was", n);
        toy_close(&toy);
    }
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_a_slot_whose_stream_is_captured_is_passed_over();
    test_without_another_slot_the_flight_is_refused();
    test_a_pass_in_the_middle_is_captured();
    test_a_disabled_session_is_captured();
    test_a_stream_follows_what_it_captured();
    test_a_flight_that_moves_into_a_capture();
    test_a_driver_that_does_not_say_captures_nothing();
    test_a_captured_flight_has_no_slot();
    test_later_passes_of_a_captured_flight();
    test_eager_passes_in_a_capture();
    test_a_captured_flight_has_a_beginning();
    test_results_are_read_after_the_last_pass();
    test_a_check_after_a_check();
    test_a_check_beside_a_capture();
    test_without_a_driver_streams_do_not_share_slots();
    test_without_a_driver_busy_fails();
    test_a_recording_beside_the_hosts_capture();
    test_a_mode_that_cannot_be_exchanged();
    return done_testing();
}
