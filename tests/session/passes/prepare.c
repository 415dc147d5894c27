/*
 * GH_PASS_PREPARE: a pass that is recorded and not run.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#define PREPARE GH_PASS_PREPARE
#define NO_EXIT GH_PASS_NO_EXIT

static gh_status ended; /* how the last pass did */

static gh_decision pass_of(gh_direction direction, uint32_t variant, uint32_t m,
                           uint32_t flags, CUstream stream, const struct io *io)
{
    gh_pass pass = a_pass(0, direction, m, stream, io);
    gh_decision d;

    pass.variant = variant;
    pass.flags = flags;
    ended = pass_once(&pass, io, &d);
    return d;
}

static gh_decision forward(uint32_t m)
{
    return pass_of(GH_FORWARD, 0, m, 0, toy.streams[0], &no_io);
}

static gh_decision backward(uint32_t variant, uint32_t m, uint32_t flags,
                            const struct io *io)
{
    return pass_of(GH_BACKWARD, variant, m, flags, toy.streams[0], io);
}

static void write_at(const gh_buffer *at, uint32_t value)
{
    toy.drv.cuMemsetD32Async((uintptr_t)at->address, value, 1, toy.streams[0]);
}

/* The first microbatch of a step prepares what the second one needs. */
static void test_a_variant_for_later(void)
{
    gh_buffer out;
    const struct io seven = { .outputs = &out, .n_outputs = 1, .value = 7 };
    const struct io nine = { .outputs = &out, .n_outputs = 1, .value = 9 };
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    out = buffer(0, 16, 0);
    write_at(&out, 1);
    forward(0);
    d = backward(1, 0, PREPARE, &nine);
    is_int(d.action, GH_ACTION_RECORD, "a backward is recorded ahead");
    is_status(ended, GH_OK, &err, "and ends well");
    is_int(read_at(&out), 1, "nothing of it has run");
    is_int((long)toy_stats(&toy).recordings, 2, "it counts as a recording");
    is_int((long)toy_stats(&toy).replays, 1, "and as no replay");
    is_int(backward(0, 0, 0, &seven).action, GH_ACTION_RECORD,
           "the microbatch still has its backward to run");
    is_int(read_at(&out), 7, "which does its own work");

    is_int(forward(1).slot, 0, "and gives the slot back");
    is_int(backward(1, 1, 0, &nine).action, GH_ACTION_REPLAYED,
           "what was prepared is replayed when its turn comes");
    is_int(read_at(&out), 9, "and runs then");
    is_int((long)toy_stats(&toy).replays, 4, "which is a replay");
    is_int((long)toy_stats(&toy).eager_passes, 0, "nothing has run eagerly");
    toy_close(&toy);
}

static void test_what_is_recorded_already(void)
{
    gh_buffer out;
    const struct io seven = { .outputs = &out, .n_outputs = 1, .value = 7 };
    gh_decision d;
    gh_stats before, after;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    out = buffer(0, 16, 0);
    forward(0);
    backward(0, 0, 0, &seven);
    forward(1);
    toy.drv.cuCtxSynchronize();
    write_at(&out, 1);
    before = toy_stats(&toy);
    d = backward(0, 1, PREPARE, &seven);
    is_int(d.action, GH_ACTION_REPLAYED, "a pass that is ready needs nothing");
    is_status(ended, GH_OK, &err, "but its exit");
    d = backward(0, 1, PREPARE | NO_EXIT, &seven);
    is_int(d.action, GH_ACTION_REPLAYED, "or not even that, with NO_EXIT");
    after = toy_stats(&toy);
    is_int(read_at(&out), 1, "nothing is launched");
    is_int((long)(after.replays - before.replays), 0, "or counted as if");
    is_int(backward(0, 1, NO_EXIT, &seven).action, GH_ACTION_REPLAYED,
           "and the microbatch has not moved on");
    is_int(read_at(&out), 7, "until its pass");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1, .environment = checked })) {
        return;
    }
    out = buffer(0, 16, 0);
    forward(0);
    backward(0, 0, 0, &seven);
    is_int(backward(0, 0, 0, &seven).reason, GH_REASON_CHECK,
           "under GRAPHHOOKS_CHECK what was recorded is compared");
    forward(1);
    is_int(backward(0, 1, PREPARE, &seven).action, GH_ACTION_REPLAYED,
           "GRAPHHOOKS_CHECK does not compare what does not run");
    is_int(backward(1, 1, PREPARE, &seven).action, GH_ACTION_RECORD,
           "what it would compare is prepared as ever");
    is_status(ended, GH_OK, &err, "and nothing runs again for it");
    toy_close(&toy);
}

static void test_where_it_is_legal(void)
{
    if (!start((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    is_int(backward(0, 0, PREPARE, &no_io).action, (long)UINT32_MAX,
           "nothing is prepared before its forward");
    is_int(ended, GH_ERR_STATE, "which is an order of its own");
    forward(0);
    forward(1);
    is_int(backward(1, 1, PREPARE, &no_io).reason, GH_REASON_BUSY,
           "without a slot there is nothing to prepare");
    is_int(backward(1, 1, 0, &no_io).action, GH_ACTION_RUN,
           "the microbatch runs eagerly as ever");
    backward(0, 0, 0, &no_io);
    is_int(backward(1, 0, PREPARE, &no_io).action, (long)UINT32_MAX,
           "nor after the pass itself");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1,
                                     .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    forward(0);
    is_int(pass_of(GH_WGRAD, 1, 0, PREPARE, toy.streams[0], &no_io).action,
           (long)UINT32_MAX, "a weight gradient not before its backward");
    backward(0, 0, 0, &no_io);
    is_int(pass_of(GH_WGRAD, 1, 0, PREPARE, toy.streams[0], &no_io).action,
           GH_ACTION_RECORD, "and after it, it is recorded");
    is_int(pass_of(GH_WGRAD, 0, 0, 0, toy.streams[0], &no_io).action,
           GH_ACTION_RECORD, "with its own pass to come");
    is_int(forward(1).slot, 0, "that gives the slot back");
    toy_close(&toy);
}

static void test_when_nothing_is_recorded(void)
{
    gh_stats stats;
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1, .warmup_steps = 2 })) {
        return;
    }
    forward(0);
    is_int(backward(1, 0, PREPARE, &no_io).reason, GH_REASON_WARMUP,
           "nothing is prepared in warmup");
    backward(0, 0, 0, &no_io);
    gh_iteration_end(toy.session, NULL);
    forward(0);
    gh_pre_warmup(toy.session, NULL);
    d = backward(1, 0, PREPARE, &no_io);
    is_int(d.reason, GH_REASON_PAUSED, "or while the host warms up");
    is_int(d.action, GH_ACTION_RUN, "the host runs nothing");
    is_status(ended, GH_OK, &err, "and exits");
    gh_post_warmup(toy.session, NULL);
    stats = toy_stats(&toy);
    is_int((long)stats.eager_passes, 2, "no pass has run eagerly for it");
    is_int((long)toy_eager(&toy, GH_REASON_PAUSED), 0,
           "for that reason");
    is_int(backward(1, 0, PREPARE, &no_io).action, GH_ACTION_RECORD,
           "after that it is recorded");
    toy_close(&toy);
}

static void test_a_recording_that_fails(void)
{
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };
    gh_buffer out;
    const struct io seven = { .outputs = &out, .n_outputs = 1, .value = 7 };

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    out = buffer(0, 16, 0);
    forward(0);
    pass = a_pass(0, GH_BACKWARD, 0, toy.streams[0], &no_io);
    pass.variant = 1;
    pass.flags = PREPARE;
    gh_layer_enter(toy.session, &pass, &d, &err);
    go_astray(d.stream);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_RERUN, &err,
              "a recording that fails is said");
    d = backward(1, 0, PREPARE, &no_io);
    is_int(d.action, GH_ACTION_RUN, "prepared again it is not recorded");
    is_int(d.reason, GH_REASON_CAPTURE, "as it is eager for good");
    is_int(backward(1, 0, 0, &seven).action, GH_ACTION_RUN,
           "the pass itself runs eagerly");
    is_int(read_at(&out), 7, "and right");
    is_int((long)toy_stats(&toy).eager_passes, 1, "which counts once");

    forward(1);
    pass.variant = 0;
    pass.microbatch = 1;
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_int(d.action, GH_ACTION_RECORD, "the other variant is recorded");
    gh_layer_cancel(toy.session, NULL);
    is_int(backward(0, 1, PREPARE, &no_io).action, GH_ACTION_RECORD,
           "given up, it is recorded another time");
    is_int(backward(0, 1, 0, &no_io).action, GH_ACTION_REPLAYED,
           "in the same flight");
    forward(2);
    pass.variant = 1;
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    forward(0);
    pass.variant = 0;
    pass.microbatch = 0;
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "a recording of no work ends well");
    is_int(backward(0, 0, PREPARE, &no_io).reason, GH_REASON_EMPTY,
           "and is known as one");
    is_int((long)toy_stats(&toy).eager_passes, 0, "but no pass has run for it");
    toy_close(&toy);
}

/* What the library copies before a replay, it does not copy for a recording. */
static void test_inputs(void)
{
    gh_buffer in, out;
    const struct io io = {
        .inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1
    };

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in = buffer(2, 16, 0);
    out = buffer(0, 16, 0);
    forward(0);
    is_int(backward(1, 0, PREPARE, &io).action, GH_ACTION_RECORD,
           "a pass with an input is prepared");
    is_int((long)toy_stats(&toy).copies, 0, "which is not copied");
    ok(toy_stats(&toy).static_bytes > 0, "but has its buffer");
    backward(0, 0, 0, &no_io);
    forward(1);
    in = buffer(3, 16, 0);
    is_int(backward(1, 1, 0, &io).action, GH_ACTION_REPLAYED,
           "a pass with another address there is replayed");
    is_int((long)toy_stats(&toy).copies, 1, "after a copy");
    forward(2);
    in = buffer(3, 32, 0);
    is_int(backward(1, 2, 0, &io).reason, GH_REASON_INPUT,
           "one of another size is not what was prepared");
    toy_close(&toy);
}

static void test_borders(void)
{
    gh_border_key key = { .struct_size = sizeof(key),
                          .direction = GH_BACKWARD,
                          .tensor = GH_TENSOR_HIDDEN };
    gh_buffer at, mine, later;
    const struct io now = { .outputs = &mine, .n_outputs = 1 };
    const struct io ahead = { .outputs = &later, .n_outputs = 1 };

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    mine = buffer(0, 16, 0);
    later = buffer(1, 16, 0);
    mine.tensor = later.tensor = GH_TENSOR_HIDDEN;
    key.segment = 1;
    run(0, GH_FORWARD, 0, toy.streams[0]);
    run(1, GH_FORWARD, 0, toy.streams[0]);
    for (uint32_t turn = 0; turn < 2; turn++) {
        gh_pass pass =
            a_pass(1, GH_BACKWARD, 0, toy.streams[0], turn ? &now : &ahead);
        gh_decision d = { .struct_size = sizeof(d) };

        pass.variant = 1 - turn;
        pass.flags = turn ? 0 : PREPARE;
        gh_layer_enter(toy.session, &pass, &d, &err);
        work(&d, turn ? &now : &ahead);
        gh_layer_exit(toy.session, &pass, &err);
        if (turn == 0) {
            is_int(gh_border_find(toy.session, &key, &at, &err),
                   GH_ERR_NOT_FOUND, "what was prepared has left nothing yet");
        }
    }
    is_status(gh_border_find(toy.session, &key, &at, &err), GH_OK, &err,
              "what has run has");
    ok(at.address == mine.address, "and that is found");
    toy_close(&toy);
}

static void test_another_stream(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t m = 0; m < 4; m++) {
        forward(m);
        pass_of(GH_BACKWARD, 1, m, PREPARE, s[1], &no_io);
        pass_of(GH_BACKWARD, m & 1, m, 0, s[0], &no_io);
    }
    pass_of(GH_FORWARD, 0, 4, 0, s[2], &no_io);
    pass_of(GH_BACKWARD, 1, 4, 0, s[2], &no_io);
    is_int(toy_races(&toy), 0,
           "a recording on a stream of its own leaves the order as it was");
    toy_close(&toy);
}

/* ---- a host that captures by itself ------------------------------------- */

static struct {
    CUgraph graph;
    CUgraphExec exec;
    uint32_t launches, destroyed;
    gh_status launch_fails;
} objects[8];
static uint32_t n_objects;

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    (void)user;
    (void)graph_p;
    toy.drv.cuStreamEndCapture(stream, &objects[n_objects].graph);
    toy.drv.cuGraphInstantiateWithFlags(&objects[n_objects].exec,
                                        objects[n_objects].graph, 0);
    *object_p = &objects[n_objects++];
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    const size_t i =
        (size_t)((char *)object - (char *)objects) / sizeof(objects[0]);

    (void)user;
    if (objects[i].launch_fails != GH_OK) {
        return objects[i].launch_fails;
    }
    objects[i].launches++;
    *exec_p = objects[i].exec;
    return toy.drv.cuGraphLaunch(objects[i].exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *object)
{
    const size_t i =
        (size_t)((char *)object - (char *)objects) / sizeof(objects[0]);

    (void)user;
    objects[i].destroyed++;
    toy.drv.cuGraphExecDestroy(objects[i].exec);
    toy.drv.cuGraphDestroy(objects[i].graph);
}

static void test_a_host_that_captures(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .capture_begin = begin_capture,
                                    .capture_end = capture_end,
                                    .launch = launch,
                                    .destroy = destroy };
    gh_buffer out;
    const struct io nine = { .outputs = &out, .n_outputs = 1, .value = 9 };

    if (!start((struct toy_options){ .layers = 1, .host = &host })) {
        return;
    }
    out = buffer(0, 16, 0);
    forward(0);
    is_int(backward(1, 0, PREPARE, &nine).action, GH_ACTION_RECORD,
           "a host that captures by itself prepares a pass");
    is_int((int)n_objects, 2, "which it has captured");
    is_int((int)objects[1].launches, 0, "and not launched");
    backward(0, 0, 0, &no_io);
    for (uint32_t m = 1; m < 3; m++) {
        forward(m);
        write_at(&out, 1);
        is_int(backward(1, m, 0, &nine).action, GH_ACTION_REPLAYED,
               "its replay in microbatch %u", m);
        is_int(read_at(&out), 9, "runs the pass");
    }
    is_int((int)objects[1].launches, 1,
           "the host launches it the first time, then the library");

    forward(3);
    objects[1].launch_fails = GH_ERR_DEVICE;
    is_int(backward(1, 3, 0, &nine).action, GH_ACTION_REPLAYED,
           "and asks no more");
    toy_close(&toy);
    is_int((int)(objects[0].destroyed + objects[1].destroyed +
                 objects[2].destroyed),
           3, "each is destroyed at the close");
}

static void test_the_trace(void)
{
    struct trace_file trace;

    if (!trace_file_open(&trace, "off") ||
        !start((struct toy_options){ .layers = 1,
                                     .environment = trace.environment })) {
        return;
    }
    forward(0);
    backward(1, 0, PREPARE, &no_io);
    backward(1, 0, PREPARE, &no_io);
    backward(1, 0, 0, &no_io);
    toy_close(&toy);
    is_int(trace_file_count(&trace,
                            "\"name\":\"prepare backward layer 0 variant1"),
           2, "in the trace a pass that is prepared is called that");
    is_int(trace_file_count(&trace, "\"name\":\"replay backward"), 1,
           "and one that runs is not");
    is_int(trace_file_count(&trace, "\"cat\":\"graph\""), 2,
           "what the device did is there, though no step has ended");
    trace_file_remove(&trace);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_a_variant_for_later();
    test_what_is_recorded_already();
    test_where_it_is_legal();
    test_when_nothing_is_recorded();
    test_a_recording_that_fails();
    test_inputs();
    test_borders();
    test_another_stream();
    test_a_host_that_captures();
    test_the_trace();
    return done_testing();
}
