/*
 * What costs performance is said once, in one line, and with its true cause.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

static const char *const nothing[] = { NULL };

static bool start_hearing(struct toy_options options)
{
    said[0] = '\0';
    options.host = &hearing;
    options.environment = nothing;
    return start(options);
}

static void test_busy(void)
{
    CUstream *s = toy.streams;

    if (!start_hearing((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        run(0, FORWARD, 0, s[0]);
        is_int(run(0, FORWARD, 1, s[0]).reason, GH_REASON_BUSY,
               "one slot is too few for two microbatches");
        run(0, BACKWARD, 0, s[0]);
        run(0, BACKWARD, 1, s[0]);
    }
    is_int(times_said("all slots were in flight when its microbatch began: "
                      "raise GRAPHHOOKS_MAX_SLOTS, run fewer at once, or mark "
                      "evaluation GH_PASS_FORWARD_ONLY: a forward without a "
                      "backward keeps its slot until the step ends; this is "
                      "said once\n"),
           1, "which is said once: %s", said);
    toy_close(&toy);
}

/* What a later pass has changed of the three inputs that were recorded. */
struct change {
    uint32_t fewer, flags;
    bool halves_last, moves_second;
};

/* The first that differs is named, with what it is and what it was. */
static void is_named(struct change change, const char *what)
{
    gh_buffer in[3];
    struct io io = { .inputs = in, .n_inputs = 3 };
    gh_decision d;
    gh_pass pass;

    if (!start_hearing((struct toy_options){
            .layers = 1, .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    in[0] = buffer(0, 64, GH_BUFFER_STATIC);
    in[1] = buffer(1, 128, GH_BUFFER_STATIC);
    in[2] = buffer(2, 64, 0);
    run(0, FORWARD, 0, toy.streams[0]);
    run_with(0, BACKWARD, 0, toy.streams[0], &io);
    run(0, GH_WGRAD, 0, toy.streams[0]);

    io.n_inputs -= change.fewer;
    in[2] = buffer(3, change.halves_last ? 32 : 64, 0);
    if (change.moves_second) {
        in[1] = buffer(4, 128, GH_BUFFER_STATIC);
        in[1].tensor = GH_TENSOR_RESIDUAL;
    }
    run(0, FORWARD, 0, toy.streams[0]);
    pass = a_pass(0, BACKWARD, 0, toy.streams[0], &io);
    pass.flags = change.flags;
    pass_once(&pass, &io, &d);
    is_int(d.reason, GH_REASON_INPUT, "a pass does not fit its graph");
    is_int(times_said(what), 1, "and the log says what differs: %s", said);
    toy_close(&toy);
}

static void test_what_does_not_fit(void)
{
    is_named((struct change){ .fewer = 1 },
             "it has 2 inputs, and had 3 when it was recorded; this");
    is_named((struct change){ .flags = GH_PASS_NO_WGRAD },
             "its flags are 0x2, and were 0x0 when it was recorded; this");
    is_named((struct change){ .halves_last = true },
             "its input 2 has 32 bytes, and had 64 when it was recorded; this");
    is_named((struct change){ .halves_last = true, .moves_second = true },
             "its input 1 (residual) is at 0x");
    is_named((struct change){ .moves_second = true },
             " when it was recorded; clear GH_BUFFER_STATIC of an input that "
             "moves; this");
}

/* A host that takes segment i for layer i. */
static void test_segments_that_are_never_entered(void)
{
    if (!start_hearing((struct toy_options){ .layers = 4, .scope = "attn" })) {
        return;
    }
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t i = 0; i < 4; i++) {
            run(i, FORWARD, 0, toy.streams[0]);
        }
        for (uint32_t i = 4; i-- > 0;) {
            run(i, BACKWARD, 0, toy.streams[0]);
        }
        gh_iteration_end(toy.session, NULL);
    }
    is_int(times_said("2 of the 4 segments that the plan captures were not "
                      "entered in the first step: layer 2 attn and 1 other "
                      "segment"),
           1, "segments that nobody enters are said once: %s", said);
    ok(strstr(said, "GRAPHHOOKS_SCOPE") != NULL, "with what has made them");
    toy_close(&toy);

    if (!start_hearing((struct toy_options){ .layers = 2 })) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        run(i, FORWARD, 0, toy.streams[0]);
    }
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("not entered"), 0, "of a host that enters all, none is");
    toy_close(&toy);
}

/* Forward and backward of every layer, where each capture fails. */
static void lose_every_capture(uint32_t layers, const char *settings)
{
    for (uint32_t i = 0; i < layers; i++) {
        toy_configure(&toy, settings);
        run(i, FORWARD, 0, toy.streams[0]);
    }
    for (uint32_t i = layers; i-- > 0;) {
        toy_configure(&toy, settings);
        run(i, BACKWARD, 0, toy.streams[0]);
    }
}

static void test_layers_that_fail_alike(void)
{
    if (!start_hearing((struct toy_options){ .layers = 12 })) {
        return;
    }
    lose_every_capture(12, "FAIL=cuStreamEndCapture:1");
    is_int(times_said("from now on"), 0, "a failure waits for the step's end");
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("layer 0 attn..mlp forward, slot 0, and 23 other passes "
                      "run eagerly from now on: cuStreamEndCapture: 999"),
           1, "where twelve layers that fail alike are one line: %s", said);
    is_int(times_said("from now on"), 1, "and the only one");
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("from now on"), 1, "which is not repeated");
    toy_close(&toy);

    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy_configure(&toy, "FAIL=cuStreamBeginCapture:1");
    run(0, FORWARD, 0, toy.streams[0]);
    toy_detach(&toy);
    is_int(times_said("layer 0 attn..mlp forward, slot 0 runs eagerly from "
                      "now on: cuStreamBeginCapture: 999"),
           1, "without a step's end it is said at the session's: %s", said);
    toy_close(&toy);
}

/* More reasons in a step than are kept apart. */
static void test_layers_that_fail_differently(void)
{
    static const char *const calls[] = {
        "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphGetNodes",
        "cuGraphInstantiateWithFlags", "cuGraphUpload", "cuGraphLaunch"
    };
    const uint32_t n = sizeof(calls) / sizeof(calls[0]);

    if (!start_hearing((struct toy_options){ .layers = 12 })) {
        return;
    }
    for (uint32_t i = 0; i < 12; i++) {
        char settings[80];

        snprintf(settings, sizeof(settings), "FAIL=%s:1", calls[i / 2]);
        toy_configure(&toy, settings);
        run(i, FORWARD, 0, toy.streams[0]);
    }
    gh_iteration_end(toy.session, NULL);
    for (uint32_t i = 0; i < n; i++) {
        char words[80];

        snprintf(words, sizeof(words),
                 ", and 1 other pass run eagerly from now on: %s", calls[i]);
        is_int(times_said(words), 1, "each reason has its line: %s", calls[i]);
    }
    is_int(times_said("from now on"), n, "and none has two: %s", said);
    toy_close(&toy);
}

/* As of a host on another driver: nothing is current on the session's. */
static void test_a_driver_that_does_not_say(void)
{
    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy.drv.cuCtxSetCurrent(NULL);
    is_int(run(0, FORWARD, 0, NULL).reason, GH_REASON_HOST_CAPTURE,
           "without a context the driver cannot say what is captured");
    run(0, BACKWARD, 0, NULL);
    is_int(times_said("the session's driver does not say whether its stream is "
                      "captured: cuStreamIsCapturing: 201"),
           1, "which is not called a capture of the host's: %s", said);
    ok(strstr(said, "GRAPHHOOKS_DRIVER") != NULL, "with the remedy");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy_close(&toy);

    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy.drv.cuStreamBeginCapture(toy.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL);
    run(0, FORWARD, 0, toy.streams[0]);
    end_capture(toy.streams[0]);
    is_int(times_said("ran eagerly: the host is capturing its stream; this is"),
           1, "a capture of the host's is called one: %s", said);
    toy_close(&toy);
}

static void test_a_stream_of_another_driver(void)
{
    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    err.text[0] = '\0';
    is_int(run(0, FORWARD, 0, (CUstream)&err).action, (long)UINT32_MAX,
           "a stream that the driver does not know is refused");
    ok(strstr(err.text, "no stream of the session's driver") != NULL &&
           strstr(err.text, "GRAPHHOOKS_DRIVER") != NULL,
       "with what may have caused it: %s", err.text);
    toy_close(&toy);
}

/* A host that waits in a recording sees that fail, and cancels. */
static void test_a_cancel_after_a_lost_capture(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &no_io);
    for (int step = 0; step < 2; step++) {
        said[0] = '\0';
        gh_layer_enter(toy.session, &pass, &d, &err);
        is_int(toy.drv.cuStreamSynchronize(toy.streams[0]),
               CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
               "a wait ends the capture");
        gh_layer_cancel(toy.session, &err);
        is_int(run(0, FORWARD, 0, toy.streams[0]).reason,
               step == 0 ? GH_REASON_WARMUP : GH_REASON_CAPTURE,
               "the pass is eager, and not recorded again and again");
        run(0, GH_BACKWARD, 0, toy.streams[0]);
        gh_iteration_end(toy.session, NULL);
        is_int(times_said(step == 0 ? "runs eagerly in this step, to be "
                                      "recorded once more: "
                                      "cuStreamEndCapture: 901"
                                    : "runs eagerly from now on: "
                                      "cuStreamEndCapture: 901"),
               1, "and that is said: %s", said);
    }
    toy_close(&toy);

    if (!start_hearing((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, &err);
    gh_layer_cancel(toy.session, &err);
    is_int(run(0, FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "a cancel of a sound recording records another time");
    pass.direction = BACKWARD;
    gh_layer_enter(toy.session, &pass, &d, &err);
    toy.drv.cuStreamSynchronize(toy.streams[0]);
    gh_layer_cancel(toy.session, &err);
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("layer 0 attn..mlp backward, slot 0 runs eagerly"), 1,
           "and a backward that is lost is called one");
    toy_close(&toy);
}

/* The software device once more, under the name of CUDA's driver. */
static bool load_other(struct driver *drv, char *path, size_t bytes)
{
    const char *soft = getenv("GRAPHHOOKS_SOFTCUDA");
    char dir[] = "/tmp/graphhooks-XXXXXX", text[600];

    if (mkdtemp(dir) == NULL) {
        return false;
    }
    snprintf(path, bytes, "%s/libcuda.so.1", dir);
    snprintf(text, sizeof(text), "cp '%s' '%s'",
             soft != NULL ? soft : ".libs/libgraphhooks-softcuda.so", path);
    if (system(text) != 0 || driver_load(path, drv, text, sizeof(text)) != 0) {
        return false;
    }
    unlink(path);
    rmdir(dir);
    return true;
}

static void test_a_host_on_another_driver(void)
{
    char path[64], line[96] = "";
    const char *const on_other[] = { "GRAPHHOOKS_LOG=warn", line, NULL };
    struct driver other;
    CUcontext ctx = NULL;

    if (!load_other(&other, path, sizeof(path))) {
        ok(false, "a second driver is loaded");
        return;
    }
    start_hearing((struct toy_options){ .layers = 1 });
    is_int(times_said("different drivers"), 0,
           "a driver that is only loaded is none of the host's");
    toy_close(&toy);

    other.cuInit(0);
    other.cuDevicePrimaryCtxRetain(&ctx, 0);
    other.cuCtxSetCurrent(ctx);
    start_hearing((struct toy_options){ .layers = 1 });
    is_int(times_said("host and session are on different drivers"), 1,
           "one with a context is, and the session says so: %s", said);
    ok(strstr(said, path) != NULL && strstr(said, "GRAPHHOOKS_DRIVER") != NULL,
       "naming it and the remedy");
    toy_close(&toy);
    other.cuCtxSetCurrent(NULL);
    other.cuDevicePrimaryCtxRelease(0);

    snprintf(line, sizeof(line), "GRAPHHOOKS_DRIVER=%s", path);
    said[0] = '\0';
    start((struct toy_options){
        .layers = 1, .host = &hearing, .environment = on_other });
    is_int(times_said("host and session are on different drivers"), 1,
           "and so is the software device, of a session on the other");
    ok(strstr(said, "libgraphhooks-softcuda.so") != NULL, "by its name: %s",
       said);
    toy_close(&toy);
}

static void test_the_summary(void)
{
    static const char *const info[] = { "GRAPHHOOKS_LOG=info", NULL };
    gh_buffer in;
    const struct io io = { .inputs = &in, .n_inputs = 1 };
    struct toy_options options = { .layers = 1, .max_slots = 1 };

    for (int loud = 1; loud >= 0; loud--) {
        options.host = &hearing;
        options.environment = loud ? info : nothing;
        said[0] = '\0';
        if (!start(options)) {
            return;
        }
        in = buffer(1, 64, 0);
        run_with(0, FORWARD, 0, toy.streams[0], &io);
        run(0, FORWARD, 1, toy.streams[0]);
        run(0, BACKWARD, 0, toy.streams[0]);
        run(0, BACKWARD, 1, toy.streams[0]);
        in = buffer(2, 64, 0);
        run_with(0, FORWARD, 0, toy.streams[0], &io);
        run(0, BACKWARD, 0, toy.streams[0]);
        gh_iteration_end(toy.session, NULL);
        is_int(times_said("closed after"), 0, "an open session has no summary");
        toy_close(&toy);
        is_int(times_said("closed after 2 steps: 4 graph launches, 2 eager "
                          "passes (busy 2); 2 recordings in 1 slot; 256 "
                          "bytes of the library's buffers; 2 input copies of "
                          "128 bytes"),
               loud, "its end has one %s: %s",
               loud ? "at info" : "only there", said);
    }
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_busy();
    test_what_does_not_fit();
    test_segments_that_are_never_entered();
    test_layers_that_fail_alike();
    test_layers_that_fail_differently();
    test_a_driver_that_does_not_say();
    test_a_stream_of_another_driver();
    test_a_host_on_another_driver();
    test_a_cancel_after_a_lost_capture();
    test_the_summary();
    return done_testing();
}
