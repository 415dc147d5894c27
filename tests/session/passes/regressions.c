/*
 * What a review broke stays mended: waits, scratch, streams and contexts of
 * hosts that nobody had in mind.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

static void *fail_a_launch(void *user)
{
    gh_buffer in = buffer(0, 256, 0);
    const struct io io = { .inputs = &in, .n_inputs = 1 };

    (void)user;
    toy_configure(&toy, "FAIL=cuGraphLaunch:1");
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    return NULL;
}

static void test_memory_given_up_without_a_context(void)
{
    gh_buffer in;
    struct io io;
    pthread_t thread;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in = buffer(0, 256, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    run(0, BACKWARD, 0, toy.streams[0]);
    pthread_create(&thread, NULL, fail_a_launch, NULL);
    pthread_join(thread, NULL);
    toy_detach(&toy);
    is_int(toy_counts(&toy).device_allocations, 1,
           "an entry given up on a thread without a context is freed");
    toy_close(&toy);
}

/* FAIL=cuStreamIsCapturing: three streams, every call in turn. */
static void test_asking_for_a_capture_fails(void)
{
    static const uint32_t counts[] = { 4, 6, 5, 3 };
    const struct toy_options options = { .layers = 2,
                                         .elems = 8,
                                         .in_flight = 2,
                                         .streams = 3,
                                         .free_running = true,
                                         .environment = quiet };
    uint32_t wrong = 0;

    for (uint32_t n = 1; n <= 88; n++) {
        const char *reason;
        char settings[64];
        gh_status status;

        toy_open(&toy, &options, &reason);
        snprintf(settings, sizeof(settings),
                 "SEED=3 RACES=1 FAIL=cuStreamIsCapturing:%u", n);
        toy_configure(&toy, settings);
        status = toy_attach(&toy);
        if (status == GH_OK) {
            status = toy_train(&toy, counts, 4);
        }
        wrong +=
            status == GH_OK && (toy_races(&toy) != 0 || !toy_is_exact(&toy));
        toy_close(&toy);
    }
    is_int(wrong, 0, "a cuStreamIsCapturing that fails costs no wait");
}

static void test_scratch_of_check(void)
{
    gh_buffer out[2];
    struct io io[2];

    if (!start((struct toy_options){ .layers = 2, .environment = checked })) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        out[m] = buffer(m, 256, GH_BUFFER_UPDATED);
        io[m] = (struct io){ .outputs = &out[m], .n_outputs = 1, .value = m };
        run(0, FORWARD, m, toy.streams[m]);
        run_with(1, FORWARD, m, toy.streams[m], &io[m]);
    }
    gh_iteration_end(toy.session, NULL);
    toy.drv.cuCtxSynchronize();
    for (uint32_t m = 0; m < 2; m++) {
        run(0, FORWARD, m, toy.streams[m]);
    }
    toy_configure(&toy, "SEED=0 RACES=1 FAIL=cuMemsetD8Async:1");
    run_with(1, FORWARD, 0, toy.streams[0], &io[0]);
    run_with(1, FORWARD, 1, toy.streams[1], &io[1]);
    is_int(toy_races(&toy), 0,
           "two streams do not share CHECK's scratch "
           "unordered after a compare that failed");
    toy_close(&toy);
}

static void *one_microbatch(void *user)
{
    uint32_t m = *(uint32_t *)user;

    toy.drv.cuCtxSetCurrent(toy.ctx);
    run_both(m, CU_STREAM_PER_THREAD);
    return NULL;
}

static void test_streams_of_threads(void)
{
    pthread_t thread;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t m = 0; m < 2; m++) {
        pthread_create(&thread, NULL, one_microbatch, &m);
        pthread_join(thread, NULL);
    }
    is_int(toy_races(&toy), 0,
           "a slot that goes from one thread's default "
           "stream to another's waits");
    toy_close(&toy);
}

static void test_seventeen_streams(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .device_alloc = lend,
                                    .device_free = reuse };
    CUstream streams[17];
    gh_buffer in;
    struct io io;

    if (!start((struct toy_options){
            .layers = 1, .max_slots = 32, .host = &host })) {
        return;
    }
    toy_configure(&toy, "SEED=5 RACES=1");
    in = buffer(40, 256, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    for (uint32_t i = 0; i < 17; i++) {
        toy.drv.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
        run_with(0, FORWARD, i, streams[i], &io);
    }
    toy_detach(&toy);
    is_int(toy_races(&toy), 0,
           "closing waits for the graphs of all of 17 "
           "streams");
    for (uint32_t i = 0; i < 17; i++) {
        toy.drv.cuStreamDestroy(streams[i]);
    }
    toy_close(&toy);
}

static void test_a_context_of_another_device(void)
{
    CUcontext other = NULL;
    uint64_t before;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy_configure(&toy, "DEVICES=2");
    toy.drv.cuDevicePrimaryCtxRetain(&other, 1);
    for (uint32_t i = 0; i < 2; i++) {
        run_both(i, toy.streams[i]);
    }
    toy.drv.cuCtxSetCurrent(other);
    before = calls_of("cuStreamSynchronize");
    for (uint32_t i = 0; i < 4; i++) {
        run(0, FORWARD, 2 * i, toy.streams[i % 2]);
        run(0, FORWARD, 2 * i + 1, toy.streams[1 - i % 2]);
        run(0, BACKWARD, 2 * i, toy.streams[i % 2]);
        run(0, BACKWARD, 2 * i + 1, toy.streams[1 - i % 2]);
    }
    is_int(calls_of("cuStreamSynchronize") - before, 0,
           "with another device's context current no pass waits for a "
           "stream");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy.drv.cuDevicePrimaryCtxRelease(1);
    toy_close(&toy);
}

static void test_captures_of_the_host(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(0, s[0]);
    toy.drv.cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    ok(run(0, FORWARD, 1, s[1]).reason != GH_REASON_HOST_CAPTURE,
       "a slot that comes from a stream the host captures does not pull "
       "another stream into the capture");
    toy.drv.cuMemsetD8Async(toy.memory + 8192, 0, 4, s[0]);
    is_int(end_capture(s[0]), 0, "nor break it");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(9, s[2]);
    run_both(0, s[0]);
    toy.drv.cuStreamBeginCapture(s[1], CU_STREAM_CAPTURE_MODE_RELAXED);
    run_both(1, s[1]);
    end_capture(s[1]);
    run(0, FORWARD, 2, s[2]);
    is_int(toy_races(&toy), 0,
           "a slot that was in the host's capture still "
           "waits for who had it before");
    toy_close(&toy);
}

/* One eager pass that writes 64 bytes of the slot; the host orders it after
 * what it has issued on `after`, if that is given. */
static void write_at(uint32_t segment, gh_direction direction, uint32_t m,
                     CUstream stream, CUstream after, uint32_t at)
{
    const gh_pass pass = a_pass(segment, direction, m, stream, &no_io);
    gh_decision d = { .struct_size = sizeof(d) };
    uint32_t own; /* set of the slot, or of a microbatch without one */

    if (after != NULL) {
        go_over(after, stream);
    }
    is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_OK, &err,
              "a pass begins");
    own = d.slot != GH_SLOT_NONE ? d.slot : 8 + m;
    toy.drv.cuMemsetD32Async(toy.memory + 2048 * own + 64 * at, 1, 16, stream);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err, "and ends");
}

static const struct toy_options eager_wgrad = { .layers = 2,
                                                .granularity = "layer",
                                                .wgrad = TOY_WGRAD_LATER };

/* Weight gradients on s[1]; the last pass of the flight on s[0] is captured
 * by the host, or is not. */
static void fly(uint32_t m, bool first_captured, bool last_captured)
{
    CUstream *s = toy.streams;

    if (first_captured) {
        toy.drv.cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    write_at(0, FORWARD, m, s[0], NULL, 0);
    if (first_captured) {
        end_capture(s[0]);
    }
    write_at(1, FORWARD, m, s[0], NULL, 1);
    write_at(1, BACKWARD, m, s[0], NULL, 1);
    write_at(1, GH_WGRAD, m, s[1], s[0], 1);
    write_at(0, BACKWARD, m, s[0], NULL, 0);
    if (last_captured) {
        toy.drv.cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    write_at(0, GH_WGRAD, m, s[0], NULL, 0);
    if (last_captured) {
        end_capture(s[0]);
    }
}

/* What the host captured runs when the host likes: nobody else is there. */
static void test_half_captured_flights(void)
{
    if (!start(eager_wgrad)) {
        return;
    }
    gh_pre_warmup(toy.session, &err);
    fly(0, false, true);
    fly(1, false, false);
    is_int(toy_races(&toy), 0,
           "a slot whose last pass the host captured is left alone");
    toy_close(&toy);

    if (!start(eager_wgrad)) {
        return;
    }
    gh_pre_warmup(toy.session, &err);
    fly(0, false, false);
    fly(1, true, false);
    is_int(toy_races(&toy), 0,
           "a flight whose first pass the host captured has no slot");
    fly(2, true, true);
    fly(3, false, false);
    is_int(toy_races(&toy), 0, "and the one that follows waits for nobody");
    toy_close(&toy);
}

#define MANY 70

static void test_a_capture_past_the_last_edge(void)
{
    CUstream many[MANY];

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        toy.drv.cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING);
        run_both(0, many[i]);
    }
    toy.drv.cuStreamBeginCapture(many[MANY - 2],
                                 CU_STREAM_CAPTURE_MODE_RELAXED);
    ok(run(0, FORWARD, 0, toy.streams[0]).action != UINT32_MAX,
       "a pass begins while the host captures the 69th stream: %s", err.text);
    is_int(end_capture(many[MANY - 2]), CUDA_SUCCESS,
           "whose capture is not broken");
    toy_detach(&toy);
    for (uint32_t i = 0; i < MANY; i++) {
        toy.drv.cuStreamDestroy(many[i]);
    }
    toy_close(&toy);
}

static void test_inputs(void)
{
    gh_buffer y, in[2];
    struct io to_y, io;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in[0] = buffer(0, 0, 0);
    io = (struct io){ .inputs = in, .n_inputs = 1 };
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    run(0, BACKWARD, 0, toy.streams[0]);
    in[0] = buffer(1, 0, 0);
    is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).action,
           GH_ACTION_REPLAYED, "an input of no bytes may move");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    y = buffer(0, 256, 0);
    to_y = (struct io){ .outputs = &y, .n_outputs = 1 };
    for (uint32_t m = 0; m < 3; m++) {
        in[0] = buffer(m == 1 ? 2 : 0, 256, 0);
        in[1] = buffer(1, m == 1 ? 64 : 128, 0);
        io = (struct io){ .inputs = in, .n_inputs = 2 };
        run_with(0, FORWARD, m, toy.streams[0], &to_y);
        is_int(run_with(1, FORWARD, m, toy.streams[0], &io).action,
               m == 0   ? GH_ACTION_RECORD
               : m == 1 ? GH_ACTION_RUN
                        : GH_ACTION_REPLAYED,
               "one odd microbatch does not cost the graph (%u)", m);
        run(1, BACKWARD, m, toy.streams[0]);
        run(0, BACKWARD, m, toy.streams[0]);
    }
    toy_close(&toy);
}

/* What a pass reads and writes over must be there twice. */
static uint32_t triple_in_place(gh_direction direction, uint32_t m)
{
    CUdeviceptr at = toy.memory + 2048, none = 0;
    uint32_t three = 3, one = 1, n = 16;
    void *params[] = { &at, &at, &none, &three, &one, &n };
    const gh_buffer in = { (void *)(uintptr_t)at, 64, GH_BUFFER_STATIC, 0 };
    const gh_buffer out = { (void *)(uintptr_t)at, 64, 0, 0 };
    const struct io io = { &in, &out, 1, 1, 0 };
    gh_pass pass = a_pass(0, direction, m, toy.streams[0], &io);
    gh_decision d = { .struct_size = sizeof(d) };

    do {
        gh_layer_enter(toy.session, &pass, &d, &err);
        if (d.action != GH_ACTION_REPLAYED) {
            toy.drv.cuLaunchKernel(toy.mix, 1, 1, 1, 256, 1, 1, 0, d.stream,
                                   params, NULL);
        }
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    return read_at(&out);
}

static void test_check_of_a_pass_in_place(void)
{
    if (!start((struct toy_options){ .environment = checked })) {
        return;
    }
    is_int(triple_in_place(FORWARD, 0), 1, "a pass in place is recorded: 1");
    run(0, BACKWARD, 0, toy.streams[0]);
    is_int(triple_in_place(FORWARD, 0), 4, "checked, it has run once: 4");
    is_int(toy_stats(&toy).checks, 2, "each time it was run both ways");
    is_int(toy_stats(&toy).check_failures, 0, "and both agree");
    toy_close(&toy);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_memory_given_up_without_a_context();
    test_asking_for_a_capture_fails();
    test_scratch_of_check();
    test_streams_of_threads();
    test_seventeen_streams();
    test_captures_of_the_host();
    test_half_captured_flights();
    test_a_capture_past_the_last_edge();
    test_inputs();
    test_a_context_of_another_device();
    test_check_of_a_pass_in_place();
    return done_testing();
}
