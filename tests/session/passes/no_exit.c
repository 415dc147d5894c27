/*
 * GH_PASS_NO_EXIT: a pass that is replayed has ended when enter returns.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <string.h>

#define NO_EXIT GH_PASS_NO_EXIT

static gh_decision pass_with(gh_direction direction, uint32_t m,
                             CUstream stream, uint32_t flags,
                             const struct io *io)
{
    gh_pass pass = a_pass(0, direction, m, stream, io);
    gh_decision d;
    gh_status status;

    pass.flags = flags;
    do {
        status = pass_once(&pass, io, &d);
    } while (status == GH_RERUN);
    return d;
}

static gh_decision pass_of(gh_direction direction, uint32_t m, CUstream stream,
                           uint32_t flags)
{
    return pass_with(direction, m, stream, flags, &no_io);
}

static void microbatch(uint32_t m, CUstream stream, uint32_t flags)
{
    pass_of(GH_FORWARD, m, stream, flags);
    pass_of(GH_BACKWARD, m, stream, flags);
}

static void test_enter_alone(void)
{
    CUstream *s = toy.streams;
    gh_stats before, after;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    is_int(pass_of(GH_FORWARD, 0, s[0], NO_EXIT).action, GH_ACTION_RECORD,
           "a pass without an exit is recorded with one");
    is_int(pass_of(GH_BACKWARD, 0, s[0], NO_EXIT).action, GH_ACTION_RECORD,
           "and so is its backward");
    before = toy_stats(&toy);
    is_int(pass_of(GH_FORWARD, 1, s[0], NO_EXIT).action, GH_ACTION_REPLAYED,
           "the next forward is replayed by enter alone");
    is_int(pass_of(GH_BACKWARD, 1, s[0], NO_EXIT).action, GH_ACTION_REPLAYED,
           "and its backward follows: the microbatch has moved on");
    is_int(pass_of(GH_FORWARD, 2, s[0], NO_EXIT).slot, 0,
           "whose slot is free again");
    after = toy_stats(&toy);
    is_int((long)(after.replays - before.replays), 3, "each is a replay");
    is_int((long)(after.hook_calls - before.hook_calls), 3,
           "and one hook call");
    is_int((long)after.eager_passes, 0, "nothing has run eagerly");
    is_status(gh_iteration_end(toy.session, &err), GH_OK, &err,
              "no pass is open after the last, and the step ends");
    toy_close(&toy);
}

static void test_the_flag_is_the_calls(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    microbatch(0, s[0], 0);
    is_int(pass_of(GH_FORWARD, 0, s[0], NO_EXIT).action, GH_ACTION_REPLAYED,
           "a pass recorded without the flag is replayed with it");
    is_int(pass_of(GH_BACKWARD, 0, s[0], 0).action, GH_ACTION_REPLAYED,
           "its backward may do without");
    toy_close(&toy);
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    microbatch(0, s[0], NO_EXIT);
    is_int(pass_of(GH_FORWARD, 0, s[0], 0).action, GH_ACTION_REPLAYED,
           "one recorded with the flag is replayed without it");
    is_status(gh_iteration_end(toy.session, &err), GH_OK, &err,
              "after an exit as ever");
    is_int(pass_of(GH_FORWARD, 0, s[0], NO_EXIT | GH_PASS_FORWARD_ONLY).reason,
           GH_REASON_FORWARD_ONLY, "evaluation may have the flag");
    is_int(pass_of(GH_FORWARD, 0, s[0], NO_EXIT).slot, 0,
           "and takes no slot then either");
    toy_close(&toy);
}

static void test_what_still_needs_an_exit(void)
{
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    pass.flags = NO_EXIT;
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_int(d.action, GH_ACTION_RECORD, "a pass that is recorded");
    is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_ERR_STATE, &err,
              "stays open until its exit");
    work(&d, &no_io);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "which it must have");
    pass_of(GH_BACKWARD, 0, toy.streams[0], NO_EXIT);
    gh_pre_warmup(toy.session, NULL);
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_int(d.action, GH_ACTION_RUN, "a pass that the host runs");
    is_status(gh_iteration_end(toy.session, &err), GH_ERR_STATE, &err,
              "stays open too");
    gh_layer_cancel(toy.session, NULL);
    gh_post_warmup(toy.session, NULL);

    gh_layer_enter(toy.session, &pass, &d, &err);
    is_int(d.action, GH_ACTION_REPLAYED, "a pass that is replayed");
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_STATE, &err,
              "has none");
    ok(strstr(err.text, "GH_PASS_NO_EXIT") != NULL, "and is told why: %s",
       err.text);
    is_status(gh_layer_cancel(toy.session, &err), GH_OK, &err,
              "cancel finds nothing to give up");
    is_int(pass_of(GH_BACKWARD, 0, toy.streams[0], NO_EXIT).action,
           GH_ACTION_REPLAYED, "so the forward has run, and the backward may");
    toy_close(&toy);
}

static void test_the_order_between_streams(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    microbatch(0, s[0], NO_EXIT);
    for (uint32_t i = 1; i < 9; i++) {
        microbatch(i, s[i % TOY_STREAMS], NO_EXIT);
    }
    is_int(toy_stats(&toy).slots, 1,
           "microbatches on three streams share one "
           "slot");
    is_int(toy_races(&toy), 0, "each after the one before");
    if (toy.soft) {
        uint64_t records = calls_of("cuEventRecord");

        microbatch(9, s[0], NO_EXIT);
        is_int((long)(calls_of("cuEventRecord") - records), 1,
               "and leaves one event behind when it gives its slot back");
    } else {
        skip(1, "only the software device counts calls");
    }
    toy_close(&toy);
}

static void test_delayed_weight_gradients(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1,
                                     .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        const gh_action action = m == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED;

        microbatch(m, s[0], NO_EXIT);
        is_int(pass_of(GH_WGRAD, m, s[0], NO_EXIT).action, action,
               "a weight gradient follows a backward without an exit");
        is_int(pass_of(GH_FORWARD, m, s[0], NO_EXIT).slot, 0,
               "and gives the slot back");
        gh_iteration_end(toy.session, NULL);
    }
    toy_close(&toy);
    if (!start((struct toy_options){ .layers = 1,
                                     .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        pass_of(GH_FORWARD, m, s[0], NO_EXIT);
        pass_of(GH_BACKWARD, m, s[0], NO_EXIT | GH_PASS_NO_WGRAD);
        is_int(pass_of(GH_WGRAD, m, s[0], NO_EXIT).action, UINT32_MAX,
               "a backward that leaves nothing is the last, exit or not");
    }
    pass_of(GH_FORWARD, 2, s[0], NO_EXIT);
    is_int(pass_of(GH_BACKWARD, 2, s[0], NO_EXIT).reason, GH_REASON_INPUT,
           "and its graph is still not launched for the other kind");
    toy_close(&toy);
}

static void test_a_check_needs_the_host(void)
{
    struct io io = { .n_outputs = 1, .value = 7 };
    gh_buffer out;

    if (!start((struct toy_options){ .layers = 1, .environment = checked })) {
        return;
    }
    out = buffer(1, 256, 0);
    io.outputs = &out;
    is_int(pass_with(GH_FORWARD, 0, toy.streams[0], NO_EXIT, &io).reason,
           GH_REASON_CHECK, "a pass that is compared is run");
    is_int((long)toy_stats(&toy).checks, 1, "and exited, which compares");
    is_int(pass_of(GH_BACKWARD, 0, toy.streams[0], NO_EXIT).action,
           GH_ACTION_RECORD, "its backward follows");
    toy_close(&toy);
}

static void test_each_is_in_the_trace(void)
{
    struct trace_file trace;

    if (!trace_file_open(&trace, "off") ||
        !start((struct toy_options){ .layers = 1,
                                     .environment = trace.environment })) {
        return;
    }
    microbatch(0, toy.streams[0], NO_EXIT);
    microbatch(1, toy.streams[0], NO_EXIT);
    microbatch(2, toy.streams[0], 0);
    ok(toy_stats(&toy).hook_ns != 0, "the time in the hooks is counted");
    toy_close(&toy);
    is_int(trace_file_count(&trace, "\"name\":\"record forward"), 1,
           "the trace has the recording");
    is_int(trace_file_count(&trace, "\"name\":\"replay forward"), 2,
           "and each replay once, with an exit or without");
    is_int(trace_file_count(&trace, "\"name\":\"replay backward"), 2,
           "backward as well");
    trace_file_remove(&trace);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_enter_alone();
    test_the_flag_is_the_calls();
    test_what_still_needs_an_exit();
    test_the_order_between_streams();
    test_delayed_weight_gradients();
    test_a_check_needs_the_host();
    test_each_is_in_the_trace();
    return done_testing();
}
