/*
 * The corners of a pass: slots that are lost, inputs that change, calls that
 * fail, threads without a context.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

/* ---- slots ------------------------------------------------------------- */

static void test_a_step_that_ends_with_slots_held(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    run(0, FORWARD, 5, s[0]);
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 0, s[0]).slot, 0, "the next step begins at slot 0");
    is_int(run(0, FORWARD, 5, s[0]).slot, 1,
           "a microbatch of the last step has forgotten its slot");
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, FORWARD, 1, s[1]).action, GH_ACTION_REPLAYED,
           "a forward that waited at the end of a step is not repeated");
    is_int(toy_races(&toy), 0, "a held slot that goes to another stream waits");

    run(0, BACKWARD, 1, s[1]);
    run(0, FORWARD, 2, s[1]);
    run(1, FORWARD, 2, s[1]);
    gh_iteration_end(toy.session, NULL);
    run(0, FORWARD, 3, s[2]);
    is_int(toy_races(&toy), 0,
           "so does one that was given back before it was held");
    go_over(s[2], s[0]);
    is_int(run(1, FORWARD, 3, s[0]).slot, 0,
           "nor is a later segment of it taken for a repeated one");
    gh_iteration_end(toy.session, NULL);
    run(0, FORWARD, 4, s[1]);
    is_int(toy_races(&toy), 0,
           "a microbatch on two streams is waited for where it was last");
    toy_close(&toy);
}

static void pass_without_work(uint32_t segment, gh_direction direction,
                              uint32_t m, CUstream stream)
{
    const gh_pass pass = a_pass(segment, direction, m, stream, &no_io);

    toy_empty_pass(&toy, &pass);
}

static void test_a_flight_on_two_streams(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    gh_pre_warmup(toy.session, NULL);
    run(0, FORWARD, 0, s[0]);
    go_over(s[0], s[1]);
    run(1, FORWARD, 0, s[1]);
    pass_without_work(1, BACKWARD, 0, s[0]);
    gh_iteration_end(toy.session, NULL);
    run(0, FORWARD, 0, s[0]);
    is_int(toy_races(&toy), 0,
           "the next flight waits for both, also on the stream that was last");

    go_over(s[0], s[1]);
    run(1, FORWARD, 0, s[1]);
    pass_without_work(1, BACKWARD, 0, s[0]);
    pass_without_work(0, BACKWARD, 0, s[0]);
    run(0, FORWARD, 1, s[0]);
    is_int(toy_races(&toy), 0, "so it does when the slot was given back");
    go_over(s[0], s[1]);
    run(1, FORWARD, 1, s[1]);
    gh_iteration_end(toy.session, NULL);
    run(0, FORWARD, 2, s[2]);
    is_int(toy_races(&toy), 0,
           "and what marked the end of one flight does not stand for the next");
    toy_close(&toy);
}

/* Those past the 63rd have no events; the thread waits for them. */
static void test_seventy_streams(void)
{
    CUstream streams[70];
    uint32_t made = 0;
    bool exact = true;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    gh_pre_warmup(toy.session, NULL);
    while (made < 70 &&
           toy.drv.cuStreamCreate(&streams[made], CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS) {
        made++;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < made; i++) {
            exact = exact && run(0, FORWARD, i, streams[i]).slot == 0;
            run(0, BACKWARD, i, streams[i]);
        }
    }
    ok(made == 70 && exact, "70 streams take turns in one slot");
    is_int(toy_races(&toy), 0, "each after the one before");
    toy_detach(&toy);
    while (made > 0) {
        toy.drv.cuStreamDestroy(streams[--made]);
    }
    toy_close(&toy);
}

static void test_a_slot_that_is_given_up(void)
{
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, FORWARD, 5, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, NULL);
    is_int(d.slot, 0, "a pass is entered in slot 0");
    gh_layer_cancel(toy.session, NULL);
    is_int(run(0, FORWARD, 6, toy.streams[0]).slot, 0,
           "and cancelled: the next microbatch gets the slot");
    run(0, BACKWARD, 6, toy.streams[0]);

    toy_configure(&toy, "FAIL=cuStreamWaitEvent:1");
    is_int(run(0, FORWARD, 7, toy.streams[1]).slot, 0,
           "a wait that fails is made up for");
    is_int(toy_races(&toy), 0, "by waiting in another way");
    run(0, BACKWARD, 7, toy.streams[1]);

    toy_configure(&toy, "FAIL=cuStreamWaitEvent:1,cuStreamSynchronize:1");
    pass = a_pass(0, FORWARD, 8, toy.streams[0], &no_io);
    is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_ERR_DEVICE, &err,
              "where none succeeds, the pass is refused");
    for (uint32_t tail = 0; tail <= 16; tail += 16) {
        toy_configure(&toy, "FAIL=cuStreamWaitEvent:1,cuStreamSynchronize:1");
        ok(toy_keeps_decision(&toy, &pass, tail),
           "and no decision is written, of %u bytes more", tail);
    }
    is_int(run(0, FORWARD, 9, toy.streams[1]).slot, 0,
           "and its slot is not lost");
    toy_close(&toy);
}

static void test_a_slot_moves_into_a_capture_of_the_host(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(0, s[1]);
    run_both(0, s[0]);
    toy.drv.cuStreamBeginCapture(s[1], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    is_int(run(0, FORWARD, 1, s[1]).reason, GH_REASON_HOST_CAPTURE,
           "a pass inside the host's capture is eager");
    is_int(end_capture(s[1]), CUDA_SUCCESS,
           "no wait of the library's breaks that capture");
    toy_close(&toy);
}

static void test_pauses_nest(void)
{
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    gh_pre_warmup(toy.session, NULL);
    gh_pre_warmup(toy.session, NULL);
    gh_post_warmup(toy.session, NULL);
    is_int(run(0, FORWARD, 0, toy.streams[0]).reason, GH_REASON_PAUSED,
           "of two pauses the first end ends one");
    run(0, BACKWARD, 0, toy.streams[0]);
    gh_post_warmup(toy.session, NULL);
    is_int(run(0, FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "the second ends both");
    toy_close(&toy);
}

/* ---- inputs ------------------------------------------------------------ */

static gh_decision run_inputs(uint32_t segment, const gh_buffer *inputs,
                              uint32_t n)
{
    const struct io io = { .inputs = inputs, .n_inputs = n };
    gh_decision d = run_with(segment, FORWARD, 0, toy.streams[0], &io);

    run(segment, BACKWARD, 0, toy.streams[0]);
    return d;
}

static void test_inputs_that_change(void)
{
    gh_buffer in[4];

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    in[0] = buffer(0, 100, 0);
    in[1] = buffer(1, 0, 0);
    in[3] = buffer(5, 4, 0);
    is_int(run_inputs(1, &in[1], 1).action, GH_ACTION_RECORD,
           "a pass with nothing but an input of no bytes is recorded");
    in[2] = buffer(2, 64, GH_BUFFER_STATIC);
    is_int(run_inputs(0, in, 3).action, GH_ACTION_RECORD,
           "a pass with an input of no bytes and a static one is recorded");
    is_int(toy_stats(&toy).static_bytes, 256, "and copies only the other");
    in[0] = buffer(3, 100, 0);
    is_int(run_inputs(0, in, 3).action, GH_ACTION_REPLAYED,
           "an input that moved is no matter");
    is_int(toy_stats(&toy).copied_bytes, 200, "it is copied");
    is_int(run_inputs(0, in, 2).reason, GH_REASON_INPUT,
           "fewer inputs are: the pass is eager");
    is_int(run_inputs(0, in, 4).reason, GH_REASON_INPUT, "so are more");
    in[0].bytes = 96;
    is_int(run_inputs(0, in, 3).reason, GH_REASON_INPUT, "so is a size");
    in[0].bytes = 100;
    in[2] = buffer(4, 64, GH_BUFFER_STATIC);
    is_int(run_inputs(0, in, 3).reason, GH_REASON_INPUT,
           "so is a static address");
    in[2] = buffer(2, 64, GH_BUFFER_STATIC);
    is_int(run_inputs(0, in, 3).action, GH_ACTION_REPLAYED,
           "and what was recorded replays again");
    toy_close(&toy);
}

static void test_as_many_inputs_as_there_may_be(void)
{
    gh_buffer in[GH_MAX_BUFFERS];
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;
    uint32_t odd = 0;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < GH_MAX_BUFFERS; i++) {
        in[i] = (gh_buffer){ (void *)(uintptr_t)(toy.memory + i),
                             1 + i % 128, 0, 0 };
    }
    pass = a_pass(0, FORWARD, 0, toy.streams[0],
                  &(struct io){ .inputs = in, .n_inputs = GH_MAX_BUFFERS });
    gh_layer_enter(toy.session, &pass, &d, NULL);
    for (uint32_t i = 0; i < d.n_inputs; i++) {
        odd += (uintptr_t)d.inputs[i].address % 256 != 0;
    }
    is_int(d.action, GH_ACTION_RECORD, "a pass of 1024 inputs is recorded");
    is_int(odd, 0, "each has a buffer aligned as memory is");
    work(&d, &no_io);
    gh_layer_exit(toy.session, &pass, NULL);
    is_int(toy_stats(&toy).copies, 8, "128 are copied in one launch");
    toy_close(&toy);
}

/* Two passes write what a third one reads, now of one and now of the other. */
static void test_a_chain_that_alternates(void)
{
    gh_buffer a, b, part_of_a;
    struct io from_a, from_b, to_a, to_b;
    uint64_t before;

    if (!start((struct toy_options){ .layers = 2, .granularity = "part" })) {
        return;
    }
    a = buffer(0, 256, 0);
    b = buffer(1, 256, 0);
    part_of_a = buffer(0, 128, 0);
    to_a = (struct io){ .outputs = &a, .n_outputs = 1 };
    to_b = (struct io){ .outputs = &b, .n_outputs = 1 };
    from_a = (struct io){ .inputs = &a, .n_inputs = 1 };
    from_b = (struct io){ .inputs = &b, .n_inputs = 1 };

    run(3, FORWARD, 9, toy.streams[0]); /* what follows is in slot 1 */
    run_with(0, FORWARD, 0, toy.streams[0], &to_a);
    run_with(1, FORWARD, 0, toy.streams[0], &to_b);
    run_with(2, FORWARD, 0, toy.streams[0], &from_a);
    is_int(toy_stats(&toy).copies, 0, "an output of the slot is read in place");
    run_with(3, FORWARD, 0, toy.streams[0],
             &(struct io){ .inputs = &part_of_a, .n_inputs = 1 });
    is_int(toy_stats(&toy).copies, 1, "a part of it is copied");
    before = toy_stats(&toy).recordings;
    for (uint32_t i = 0; i < 3; i++) {
        run(2, BACKWARD, 0, toy.streams[0]);
        run_with(2, FORWARD, 0, toy.streams[0], &from_b);
        run(2, BACKWARD, 0, toy.streams[0]);
        run_with(2, FORWARD, 0, toy.streams[0], &from_a);
    }
    is_int(toy_stats(&toy).recordings, before + 3,
           "one that moves between outputs is recorded once more, not always, "
           "and its backward with it");
    is_int(toy_stats(&toy).eager_passes, 0, "and never eager");
    toy_close(&toy);
}

/* ---- check ------------------------------------------------------------- */

static void test_check_of_every_third(void)
{
    static const char *const third[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_CHECK=bitwise",
                                         "GRAPHHOOKS_CHECK_EVERY=3", NULL };
    struct io io = { .n_outputs = 1, .value = 7 };
    gh_buffer out;

    if (!start((struct toy_options){ .layers = 1, .environment = third })) {
        return;
    }
    out = buffer(1, 256, 0);
    io.outputs = &out;
    for (uint32_t i = 0; i < 10; i++) {
        run_with(0, FORWARD, 0, toy.streams[0], &io);
        run_with(0, BACKWARD, 0, toy.streams[0], &io);
    }
    is_int(toy_stats(&toy).checks, 2 * 5,
           "of ten launches of each graph the first two are compared, and "
           "every third");
    toy_close(&toy);
}

/* Records two outputs, then runs a checked pass with others. */
static void check_differs(const struct io *second, const char *name)
{
    const gh_buffer out[] = { buffer(0, 256, 0), buffer(1, 256, 0) };
    const struct io first = { .outputs = out, .n_outputs = 2, .value = 7 };
    gh_decision d;

    run_with(0, FORWARD, 0, toy.streams[0], &first);
    run(0, BACKWARD, 0, toy.streams[0]);
    d = run_with(0, FORWARD, 0, toy.streams[0], second);
    is_int(d.reason, GH_REASON_CHECK, "%s: a ready pass is compared", name);
    is_int(toy_stats(&toy).check_failures, 1, "%s: the check fails", name);
    run(0, BACKWARD, 0, toy.streams[0]);
    d = run_with(0, FORWARD, 0, toy.streams[0], &first);
    is_int(d.reason, GH_REASON_MISMATCH, "%s: eager from then on", name);
    is_int(toy_stats(&toy).static_bytes, 0, "%s: its memory is returned", name);
    toy_close(&toy);
}

static void test_check_of_an_output_of_no_bytes(void)
{
    gh_buffer out[2];
    struct io io;

    if (!start((struct toy_options){ .layers = 1, .environment = checked })) {
        return;
    }
    out[0] = buffer(0, 0, 0);
    out[1] = buffer(1, 256, 0);
    io = (struct io){ .outputs = &out[1], .n_outputs = 1, .value = 7 };
    for (uint32_t i = 0; i < 2; i++) {
        gh_pass pass = a_pass(0, FORWARD, 0, toy.streams[0], &no_io);
        gh_decision d = { .struct_size = sizeof(d) };

        do {
            gh_layer_enter(toy.session, &pass, &d, NULL);
            work(&d, &io);
            pass.outputs = out;
            pass.n_outputs = 2;
        } while (gh_layer_exit(toy.session, &pass, NULL) == GH_RERUN);
        run(0, BACKWARD, 0, toy.streams[0]);
    }
    is_int(toy_stats(&toy).checks, 2,
           "a pass with an output of no bytes is "
           "compared");
    is_int(toy_stats(&toy).check_failures +
               toy_eager(&toy, GH_REASON_DEVICE),
           0, "and found equal");
    toy_close(&toy);
}

static void test_what_check_finds(void)
{
    const struct toy_options options = { .layers = 1, .environment = checked };
    gh_buffer out[2];

    if (!start(options)) {
        return;
    }
    out[0] = buffer(0, 256, 0);
    out[1] = buffer(1, 256, 0);
    check_differs(&(struct io){ .outputs = out, .n_outputs = 1, .value = 7 },
                  "fewer outputs");
    if (!start(options)) {
        return;
    }
    out[0] = buffer(0, 256, 0);
    out[1] = buffer(1, 128, 0);
    check_differs(&(struct io){ .outputs = out, .n_outputs = 2, .value = 7 },
                  "a smaller output");
    if (!start(options)) {
        return;
    }
    out[0] = buffer(0, 256, 0);
    out[1] = buffer(2, 256, 0); /* holds zeros */
    check_differs(&(struct io){ .outputs = out, .n_outputs = 2, .value = 0 },
                  "another value");
}

static void test_check_when_its_copies_fail(void)
{
    gh_buffer out;
    struct io io;
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1, .environment = checked })) {
        return;
    }
    out = buffer(0, 256, GH_BUFFER_UPDATED);
    io = (struct io){ .outputs = &out, .n_outputs = 1, .value = 7 };
    for (uint32_t i = 0; i < 2; i++) {
        run_with(0, FORWARD, 0, toy.streams[0], &io);
        run(0, BACKWARD, 0, toy.streams[0]);
    }
    toy_configure(&toy, "FAIL=cuMemcpyDtoDAsync:2");
    is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).action,
           GH_ACTION_REPLAYED, "a result that cannot be set aside stands");
    run(0, BACKWARD, 0, toy.streams[0]);
    toy_configure(&toy, "FAIL=cuMemcpyDtoDAsync:3");
    is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).reason, GH_REASON_CHECK,
           "what cannot be put back is tried again");
    run(0, BACKWARD, 0, toy.streams[0]);
    toy_configure(&toy, "FAIL=cuMemcpyDtoDAsync:3,cuMemcpyDtoDAsync:4");
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &io);
    is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_ERR_DEVICE, &err,
              "and when that fails the host is told");
    ok(strstr(err.text, "could not restore") != NULL, "in words: %s", err.text);
    for (uint32_t tail = 0; tail <= 16; tail += 16) {
        toy_configure(&toy, "");
        run_with(0, FORWARD, 0, toy.streams[0], &io);
        run(0, BACKWARD, 0, toy.streams[0]);
        toy_configure(&toy, "FAIL=cuMemcpyDtoDAsync:3,cuMemcpyDtoDAsync:4");
        ok(toy_keeps_decision(&toy, &pass, tail),
           "and given no decision, of %u bytes more", tail);
    }
    toy_configure(&toy, "");
    is_int(run(0, FORWARD, 1, toy.streams[0]).slot, 0,
           "the slot of the lost pass is free");
    toy_close(&toy);
}

/* ---- recording --------------------------------------------------------- */

struct routes {
    uint32_t begun, ended, kept;
};

static gh_status route_begin(void *user, const gh_recording *recording)
{
    struct routes *routes = user;

    (void)recording;
    routes->begun++;
    return GH_OK;
}

static void route_end(void *user, const gh_recording *recording,
                      uint32_t kept)
{
    struct routes *routes = user;

    (void)recording;
    routes->ended++;
    routes->kept += kept;
}

static void record_with(const char *settings, const char *name)
{
    struct routes routes = { 0 };
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .user = &routes,
                                    .record_begin = route_begin,
                                    .record_end = route_end };
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    toy_configure(&toy, settings);
    is_int(run(0, FORWARD, 0, toy.streams[0]).action, GH_ACTION_RUN,
           "%s: the pass ends eagerly", name);
    is_int(routes.begun, 1, "%s: record_begin was called", name);
    is_int(routes.ended, 1, "%s: so was record_end", name);
    is_int(routes.kept, 0, "%s: nothing was kept", name);
    toy.drv.cuStreamIsCapturing(toy.streams[0], &capture);
    is_int(capture, CU_STREAM_CAPTURE_STATUS_NONE, "%s: the stream is usable",
           name);
    toy_configure(&toy, "");
    is_int(toy_stats(&toy).nodes, 0, "%s: there is no graph", name);
    toy_close(&toy);
}

static void test_a_recording_that_fails(void)
{
    record_with("FAIL=cuStreamBeginCapture:1", "no capture");
    record_with("FAIL=cuStreamEndCapture:1", "no end");
    record_with("FAIL=cuStreamEndCapture:1,cuStreamEndCapture:2",
                "no end, twice");
    record_with("FAIL=cuGraphInstantiateWithFlags:1", "no exec");
    record_with("FAIL=cuGraphUpload:1", "no upload");
    record_with("FAIL=cuGraphLaunch:1", "no launch");
}

static void test_a_recording_that_is_cancelled(void)
{
    struct routes routes = { 0 };
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .user = &routes,
                                    .record_begin = route_begin,
                                    .record_end = route_end };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, NULL);
    gh_layer_cancel(toy.session, NULL);
    is_int(routes.ended, 1, "a recording that is cancelled ends its routing");
    is_int(routes.kept, 0, "and keeps nothing");
    gh_layer_enter(toy.session, &pass, &d, NULL);
    toy_detach(&toy);
    is_int(routes.ended, 2, "so does one that is closed");
    toy_close(&toy);
    routes = (struct routes){ 0 };
    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, NULL);
    gh_layer_exit(toy.session, &pass, NULL);
    is_int(toy_eager(&toy, GH_REASON_EMPTY), 1, "a recording may be empty");
    is_int(routes.ended, 1, "which ends its routing too");
    is_int(routes.kept, 0, "with nothing kept");
    toy_close(&toy);
}

static void test_a_launch_that_fails_later(void)
{
    gh_buffer in;
    struct io io;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in = buffer(0, 256, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    run(0, BACKWARD, 0, toy.streams[0]);
    is_int(calls_of("cuGraphUpload"), 2, "each graph is uploaded");
    is_int(toy_stats(&toy).nodes, 2, "and its nodes counted");
    toy_configure(&toy, "FAIL=cuGraphLaunch:1");
    is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).reason,
           GH_REASON_DEVICE, "a ready pass that does not launch is eager");
    is_int(toy_stats(&toy).nodes, 1, "its graph is gone");
    is_int(toy_stats(&toy).static_bytes, 0, "and its memory");
    run(0, BACKWARD, 0, toy.streams[0]);
    is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).reason,
           GH_REASON_DEVICE, "for good");
    toy_close(&toy);
}

static void *allocate(void *user)
{
    CUresult *result = user;
    CUdeviceptr memory = 0;

    toy.drv.cuCtxSetCurrent(toy.ctx);
    *result = toy.drv.cuMemAlloc(&memory, 256);
    toy.drv.cuMemFree(memory);
    return NULL;
}

static void test_others_work_while_a_pass_is_recorded(void)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;
    pthread_t thread;

    if (!start((struct toy_options){ .layers = 1,
                                     .legacy = true,
                                     .flags = GH_SESSION_LEGACY_THREADS })) {
        return;
    }
    pass = a_pass(0, FORWARD, 0, NULL, &no_io);
    gh_layer_enter(toy.session, &pass, &d, NULL);
    is_int(d.action, GH_ACTION_RECORD,
           "a pass of the legacy stream is "
           "recorded");
    pthread_create(&thread, NULL, allocate, &result);
    pthread_join(thread, NULL);
    is_int(result, CUDA_SUCCESS, "another thread may allocate meanwhile");
    is_int(toy.drv.cuMemsetD8Async(toy.memory, 0, 4, NULL), CUDA_SUCCESS,
           "and the legacy stream is usable");
    work(&d, &no_io);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "the recording survives both");
    toy_close(&toy);
}

static void *record_and_replay(void *user)
{
    gh_decision *d = user;
    CUcontext current = toy.ctx;

    d[0] = run(0, FORWARD, 0, toy.streams[0]);
    toy.drv.cuCtxGetCurrent(&current);
    ok(current == NULL, "recording leaves a thread without a context as it "
                        "was");
    d[1] = run(0, BACKWARD, 0, toy.streams[0]);
    d[2] = run(0, FORWARD, 0, toy.streams[0]);
    return NULL;
}

static void test_a_thread_without_a_context(void)
{
    gh_decision d[3];
    pthread_t thread;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pthread_create(&thread, NULL, record_and_replay, d);
    pthread_join(thread, NULL);
    is_int(d[0].action, GH_ACTION_RECORD, "such a thread records");
    is_int(toy_stats(&toy).recordings, 2, "what becomes a graph");
    is_int(d[2].action, GH_ACTION_REPLAYED, "and replays");
    toy_detach(&toy);

    toy.drv.cuCtxSetCurrent(NULL);
    is_status(toy_attach(&toy), GH_OK, &toy.err, "and opens a session");
    is_int(toy_counts(&toy).contexts_retained, 2, "that retains a context");
    toy_detach(&toy);
    is_int(toy_counts(&toy).contexts_retained, 1, "and releases it");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy_close(&toy);
}

/* ---- a host's memory --------------------------------------------------- */

/* A pool: somebody else gets the memory at once. */
static void test_memory_is_returned_when_nobody_uses_it(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .device_alloc = lend,
                                    .device_free = reuse };
    gh_buffer in;
    struct io io;

    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    in = buffer(0, 256, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    run_with(0, FORWARD, 0, toy.streams[2], &io);
    run(0, BACKWARD, 0, toy.streams[2]);
    run_with(0, FORWARD, 1, toy.streams[0], &io);
    run(0, BACKWARD, 1, toy.streams[0]);
    toy.drv.cuStreamBeginCapture(toy.streams[2],
                                 CU_STREAM_CAPTURE_MODE_RELAXED);
    toy_configure(&toy, "SEED=3 RACES=1 FAIL=cuGraphLaunch:1");
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    is_int(end_capture(toy.streams[2]), CUDA_SUCCESS,
           "who waits leaves a stream alone that the host captures");
    run(0, BACKWARD, 0, toy.streams[0]);
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    toy_configure(&toy, "SEED=3 RACES=1");
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    run(0, BACKWARD, 0, toy.streams[0]);
    toy_configure(&toy, "SEED=3 RACES=1 FAIL=cuGraphLaunch:1");
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    is_int(toy_races(&toy), 0, "a graph that is given up is waited for");
    run_with(0, FORWARD, 1, toy.streams[1], &io);
    toy_detach(&toy);
    is_int(toy_races(&toy), 0, "so are those of a session that is closed");
    toy_close(&toy);
}

/* ---- trace ------------------------------------------------------------- */

static void test_a_failed_recording_is_in_the_trace(void)
{
    static const char *const traced[] = {
        "GRAPHHOOKS_LOG=off", "GRAPHHOOKS_TRACE=tests-corners.%p.json", NULL
    };
    char path[64], text[8192] = "";
    FILE *file;

    if (!start((struct toy_options){ .layers = 1, .environment = traced })) {
        return;
    }
    toy_configure(&toy, "FAIL=cuGraphLaunch:1");
    run(0, FORWARD, 0, toy.streams[0]);
    toy_close(&toy);
    snprintf(path, sizeof(path), "tests-corners.%ld.json", (long)getpid());
    file = fopen(path, "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    }
    remove(path);
    ok(strstr(text, "\"cat\":\"failed recording\"") != NULL,
       "a recording that failed is in the trace as such");
    ok(strstr(text, "\"action\":\"eager\",\"reason\":\"device\"") != NULL,
       "and the eager pass after it, with its reason");
}

/* ---- two threads in one session --------------------------------------------- */

static void *call_from_another(void *text)
{
    gh_pass pass = a_pass(0, FORWARD, 1, toy.streams[0], &no_io);
    gh_decision d = { .struct_size = sizeof(d) };
    gh_error e[3] = { { "" }, { "" }, { "" } };

    gh_layer_enter(toy.session, &pass, &d, &e[0]);
    gh_layer_exit(toy.session, &pass, &e[1]);
    gh_iteration_end(toy.session, &e[2]);
    for (int i = 0; i < 3; i++) {
        strcat(strcat(text, e[i].text), "\n");
    }
    return NULL;
}

static void test_two_threads_in_one_session(void)
{
    static const char words[] = "entered by another thread, and only one may "
                                "use a session at a time";
    gh_decision d = { .struct_size = sizeof(d) };
    char theirs[1024] = "", ours[1024] = "";
    const char *at = theirs;
    pthread_t thread;
    gh_pass pass;
    int n = 0;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    pthread_create(&thread, NULL, call_from_another, theirs);
    pthread_join(thread, NULL);
    call_from_another(ours);
    for (; (at = strstr(at, words)) != NULL; at++) {
        n++;
    }
    is_int(n, 3, "a thread that calls while another's pass is open is told "
                 "whose it is: %s", theirs);
    ok(strstr(ours, "is still open: call") != NULL &&
           strstr(ours, "another thread") == NULL,
       "and the thread that has entered it is told of a pass alone: %s", ours);
    work(&d, &no_io);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "the pass goes on");
    toy_close(&toy);
}

/* ---- a child that the host forks ------------------------------------------- */

static bool told;

static void hear_any(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    told = true;
}

/* A child has a copy of the session, of which nothing is its own. */
static void test_a_forked_child_closes_nothing(void)
{
    static const gh_host_services host = { .struct_size = sizeof(host),
                                           .log = hear_any };
    struct trace_file trace;
    int status = -1;
    pid_t child;

    if (!trace_file_open(&trace, "info")) {
        return;
    }
    if (!start((struct toy_options){ .environment = trace.environment,
                                     .host = &host })) {
        trace_file_remove(&trace);
        return;
    }
    run_both(0, toy.streams[0]);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        told = false;
        gh_iteration_end(toy.session, NULL);
        gh_session_close(toy.session);
        _exit(told);
    }
    waitpid(child, &status, 0);
    is_int(status, 0, "a child that closes its copy of a session says nothing");
    run_both(1, toy.streams[0]);
    toy_close(&toy);
    is_int(trace_file_count(&trace, "\"cat\":\"record\""), 2,
           "each recording is in the trace once");
    is_int(trace_file_count(&trace, "\"cat\":\"replay\""), 2,
           "and each replay after it");
    is_int(trace_file_count(&trace, "]"), 1, "and the trace ends once");
    trace_file_remove(&trace);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }

    test_a_step_that_ends_with_slots_held();
    test_a_flight_on_two_streams();
    test_seventy_streams();
    test_a_slot_that_is_given_up();
    test_a_slot_moves_into_a_capture_of_the_host();
    test_pauses_nest();
    test_inputs_that_change();
    test_as_many_inputs_as_there_may_be();
    test_a_chain_that_alternates();
    test_check_of_every_third();
    test_check_of_an_output_of_no_bytes();
    test_what_check_finds();
    test_check_when_its_copies_fail();
    test_a_recording_that_fails();
    test_a_recording_that_is_cancelled();
    test_a_launch_that_fails_later();
    test_others_work_while_a_pass_is_recorded();
    test_a_thread_without_a_context();
    test_memory_is_returned_when_nobody_uses_it();
    test_a_failed_recording_is_in_the_trace();
    test_two_threads_in_one_session();
    test_a_forked_child_closes_nothing();
    return done_testing();
}
