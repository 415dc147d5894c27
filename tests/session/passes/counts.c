/*
 * What a session counts and says is so: hook calls, warnings said once, what
 * a ready pass costs, where its results are.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <string.h>

static void test_hook_calls(void)
{
    const gh_pass early = { .struct_size = sizeof(early),
                            .direction = GH_BACKWARD };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    is_int(toy_stats(&toy).hook_calls, 0, "a new session has no hook calls");
    run_both(0, toy.streams[0]);
    is_int(toy_stats(&toy).hook_calls, 4, "two passes are four");
    toy_empty_pass(&toy, &early);
    is_int(toy_stats(&toy).hook_calls, 4, "one that is refused is none");
    pass = a_pass(0, GH_FORWARD, 1, toy.streams[0], &no_io);
    pass.flags = GH_PASS_NO_EXIT;
    pass_once(&pass, &no_io, &d);
    is_int(toy_stats(&toy).hook_calls, 5, "one without an exit is one");
    pass = a_pass(0, GH_BACKWARD, 1, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    gh_layer_cancel(toy.session, &err);
    is_int(toy_stats(&toy).hook_calls, 6, "and so is one that is cancelled");
    toy_close(&toy);
}

/* ---- reasons ----------------------------------------------------------- */

/* Every value that has a name, and no other. */
static void test_every_reason_can_be_asked_for(void)
{
    uint64_t count = 0, sum = 0;
    gh_reason n = 0;

    if (!start((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    run(0, GH_FORWARD, 0, toy.streams[0]);
    run_both(1, toy.streams[0]);
    toy_detach(&toy);
    toy_attach(&toy);
    run_both(0, toy.streams[0]);
    gh_iteration_end(toy.session, NULL);
    run(0, GH_FORWARD, 0, toy.streams[0]);
    run_both(1, toy.streams[0]);
    while (gh_session_reasons(toy.session, n, &count, &err) == GH_OK) {
        sum += count;
        n++;
    }
    is_str(gh_reason_name(n - 1), "ranks",
           "the last reason can be asked for");
    is_str(gh_reason_name(n), "?", "and what is none cannot");
    is_status(gh_session_reasons(toy.session, n, &count, &err),
              GH_ERR_NOT_FOUND, &err, "as is said");
    ok(strstr(err.text, "no reason 19") != NULL, "in words: %s", err.text);
    is_int(toy_eager(&toy, GH_REASON_WARMUP), 2, "each has its own count");
    is_int(toy_eager(&toy, GH_REASON_BUSY), 2, "of this session");
    is_int(sum, toy_stats(&toy).eager_passes, "and all are the eager passes");
    toy_close(&toy);
}

/* ---- what is said once ------------------------------------------------- */

static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };

/* Microbatch 0 holds the only slot; the inputs of a pass change. */
static void be_busy(void)
{
    run(0, GH_FORWARD, 1, toy.streams[0]);
    run(0, GH_BACKWARD, 1, toy.streams[0]);
}

static void change_inputs(void)
{
    const gh_buffer in = buffer(0, 64, 0);
    const struct io io = { .inputs = &in, .n_inputs = 1 };

    run(0, GH_BACKWARD, 0, toy.streams[0]);
    run_with(0, GH_FORWARD, 0, toy.streams[0], &io);
}

static void be_captured(void)
{
    gh_pass pass = a_pass(0, GH_BACKWARD, 0, toy.streams[0], &no_io);

    toy.drv.cuStreamBeginCapture(toy.streams[0],
                                 CU_STREAM_CAPTURE_MODE_RELAXED);
    toy_empty_pass(&toy, &pass);
    end_capture(toy.streams[0]);
    run(0, GH_FORWARD, 0, toy.streams[0]);
}

static void test_said_once(void)
{
    if (!start((struct toy_options){ .layers = 1,
                                     .max_slots = 1,
                                     .host = &hearing,
                                     .environment = warning })) {
        return;
    }
    said[0] = '\0';
    run(0, GH_FORWARD, 0, toy.streams[0]);
    for (uint32_t i = 0; i < 50; i++) {
        be_busy();
        change_inputs();
        be_captured();
    }
    is_int(times_said("all slots were in flight"), 1,
           "busy slots are said once, however often it happens");
    is_int(times_said("it has 1 inputs, and had 0 when it was recorded; this "
                      "is said once"), 1,
           "so are inputs that change");
    is_int(times_said("the host is capturing"), 1,
           "so is a capture of the host's");
    is_int(times_said("\n"), 3, "and nothing else is");
    ok(toy_eager(&toy, GH_REASON_BUSY) == 100 &&
           toy_eager(&toy, GH_REASON_INPUT) == 50 &&
           toy_eager(&toy, GH_REASON_HOST_CAPTURE) == 50,
       "though each is counted");
    toy_close(&toy);
}

/* However a segment was entered, it was: as an evaluation, in any variant. */
static void test_what_is_called_missing(void)
{
    gh_pass pass;
    gh_decision d;

    if (!start((struct toy_options){
            .layers = 3, .host = &hearing, .environment = warning })) {
        return;
    }
    said[0] = '\0';
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    pass.variant = 1;
    pass_once(&pass, &no_io, &d);
    run(1, GH_FORWARD, 0, toy.streams[0]);
    pass = a_pass(2, GH_FORWARD, 1, toy.streams[0], &no_io);
    pass.flags = GH_PASS_FORWARD_ONLY;
    pass_once(&pass, &no_io, &d);
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("\n"), 0, "no segment that was entered is missed: %s",
           said);
    toy_close(&toy);
}

/* A session that captures nothing misses nothing. */
static void test_nothing_is_missing_where_all_is_off(void)
{
    static const char *const off[] = { "GRAPHHOOKS_LOG=warn",
                                       "GRAPHHOOKS_ENABLE=0", NULL };

    if (!start((struct toy_options){
            .layers = 2, .host = &hearing, .environment = off })) {
        return;
    }
    said[0] = '\0';
    run_both(0, toy.streams[0]);
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("were not entered"), 0,
           "a session that is off misses no segment: %s", said);
    toy_close(&toy);
}

static void test_nothing_to_compare_is_said_once(void)
{
    static const char *const checking[] = { "GRAPHHOOKS_LOG=warn",
                                            "GRAPHHOOKS_CHECK=bitwise", NULL };

    if (!start((struct toy_options){
            .layers = 1, .host = &hearing, .environment = checking })) {
        return;
    }
    said[0] = '\0';
    for (uint32_t step = 0; step < 5; step++) {
        run_both(0, toy.streams[0]);
        gh_iteration_end(toy.session, NULL);
    }
    is_int(times_said("compares nothing in the forward"), 1,
           "a forward that lists no outputs is named once");
    is_int(times_said("compares nothing in the backward"), 1,
           "and so is a backward");
    toy_close(&toy);
}

/* ---- a ready pass ------------------------------------------------------ */

static void test_what_a_ready_pass_costs(void)
{
    gh_buffer in;
    struct io io;
    uint64_t before;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in = buffer(0, 64, GH_BUFFER_STATIC);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    for (uint32_t m = 0; m < 3; m++) {
        run_with(0, GH_FORWARD, m, toy.streams[0], &io);
        run(0, GH_BACKWARD, m, toy.streams[0]);
    }
    before = calls_of("*");
    run_with(0, GH_FORWARD, 3, toy.streams[0], &io);
    is_int(calls_of("*") - before, 2,
           "a ready pass is two driver calls: is the stream captured, and "
           "the launch");
    run(0, GH_BACKWARD, 3, toy.streams[0]);
    is_int(calls_of("*") - before, 4, "and so is the one that ends its flight");
    toy_close(&toy);
}

static void test_where_the_results_are(void)
{
    gh_buffer out[2], other;
    struct io io, elsewhere;
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    out[0] = buffer(0, 64, 0);
    out[1] = buffer(1, 32, GH_BUFFER_UPDATED);
    other = buffer(2, 16, 0);
    io = (struct io){ .outputs = out, .n_outputs = 2 };
    elsewhere = (struct io){ .outputs = &other, .n_outputs = 1 };
    d = run_with(0, GH_FORWARD, 0, toy.streams[0], &io);
    is_int(d.n_outputs, 0, "a recording has no results yet");
    run(0, GH_BACKWARD, 0, toy.streams[0]);
    d = run_with(0, GH_FORWARD, 1, toy.streams[0], &elsewhere);
    is_int(d.n_outputs, 2, "a replay has the results of the recording");
    ok(d.outputs != NULL && d.outputs[0].address == out[0].address &&
           d.outputs[0].bytes == 64 && d.outputs[1].address == out[1].address &&
           d.outputs[1].bytes == 32 && d.outputs[1].flags == GH_BUFFER_UPDATED,
       "where and as the recording gave them");
    toy_close(&toy);
}

static void test_an_empty_recording_leaves_nothing(void)
{
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    is_int(toy_empty_pass(&toy, &pass).action, GH_ACTION_RECORD,
           "a pass of no work is recorded");
    is_int(toy_eager(&toy, GH_REASON_EMPTY), 1,
           "and found to be empty");
    is_int(toy_counts(&toy).graphs + toy_counts(&toy).execs, 0,
           "of its graph nothing is left");
    toy_close(&toy);
}

/* ---- what the trace is told --------------------------------------------- */

static void test_slots_in_the_trace(struct trace_file *trace)
{
    if (!trace_file_open(trace, "off") ||
        !start((struct toy_options){ .layers = 1,
                                     .environment = trace->environment })) {
        return;
    }
    for (uint32_t m = 0; m < 3; m++) {
        run(0, GH_FORWARD, m, toy.streams[0]);
    }
    run(0, GH_BACKWARD, 2, toy.streams[0]);
    toy_close(&toy);
    is_int(trace_file_count(trace, " slot0\""), 1,
           "the trace has one pass in slot 0");
    is_int(trace_file_count(trace, " slot1\""), 1, "one in slot 1");
    is_int(trace_file_count(trace, " slot2\""), 2, "and two in slot 2");
}

/* It ends with GH_RERUN, as one that fails does. */
static void test_a_recording_to_compare_in_the_trace(struct trace_file *trace)
{
    const char *environment[4] = { [2] = "GRAPHHOOKS_CHECK=bitwise" };
    gh_buffer out;

    if (!trace_file_open(trace, "off")) {
        return;
    }
    environment[0] = trace->environment[0];
    environment[1] = trace->environment[1];
    if (!start(
            (struct toy_options){ .layers = 1, .environment = environment })) {
        return;
    }
    out = buffer(0, 64, 0);
    run_with(0, GH_FORWARD, 0, toy.streams[0],
             &(struct io){ .outputs = &out, .n_outputs = 1 });
    toy_close(&toy);
    is_int(trace_file_count(trace, "\"name\":\"record forward"), 1,
           "a recording that is compared is in the trace");
    is_int(trace_file_count(trace, "failed recording"), 0,
           "and not as one that failed");
}

/* More passes than the trace's buffer holds, but for the end of a step. */
static void test_long_steps_are_in_the_trace(struct trace_file *trace)
{
    const uint32_t steps = 4, microbatches = 10000;

    if (!trace_file_open(trace, "off") ||
        !start((struct toy_options){ .layers = 1,
                                     .environment = trace->environment })) {
        return;
    }
    for (uint32_t i = 0; i < steps * microbatches; i++) {
        run_both(i % microbatches, toy.streams[0]);
        if (i % microbatches == microbatches - 1) {
            gh_iteration_end(toy.session, NULL);
        }
    }
    toy_close(&toy);
    is_int(trace_file_count(trace, "passes did not fit"), 0,
           "no pass of a long step is missing in the trace");
    is_int(trace_file_count(trace, "\"name\":\"replay"),
           2 * steps * microbatches - 2, "all are there");
}

int main(void)
{
    static struct trace_file traces[3];
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_hook_calls();
    test_where_the_results_are();
    test_every_reason_can_be_asked_for();
    test_said_once();
    test_what_is_called_missing();
    test_nothing_is_missing_where_all_is_off();
    test_nothing_to_compare_is_said_once();
    test_slots_in_the_trace(&traces[0]);
    test_a_recording_to_compare_in_the_trace(&traces[1]);
    test_long_steps_are_in_the_trace(&traces[2]);
    for (uint32_t i = 0; i < 3; i++) {
        trace_file_remove(&traces[i]);
    }
    if (toy.soft) {
        test_what_a_ready_pass_costs();
        test_an_empty_recording_leaves_nothing();
    } else {
        skip(5, "only the software device counts calls and objects");
    }
    return done_testing();
}
