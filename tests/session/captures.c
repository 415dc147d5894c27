/*
 * A stream that the host captures, has lost in a capture, or of which the
 * driver does not say: nothing is launched into it, and nothing waits for it.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

/* A forward that writes 7, and its backward; it is ready after the first. */
static gh_buffer out;
static const struct io writes_seven = { .outputs = &out,
                                        .n_outputs = 1,
                                        .value = 7 };

static gh_decision forward(uint32_t m, CUstream stream)
{
    gh_decision d;

    out = buffer(0, 16, 0);
    toy.drv.cuMemsetD32Async((uintptr_t)out.address, 0, 4, stream);
    d = run_with(0, GH_FORWARD, m, stream, &writes_seven);
    run(0, GH_BACKWARD, m, stream);
    return d;
}

/* Whatever the code, nobody knows whether the stream is in a capture. */
static void test_a_driver_that_does_not_say(void)
{
    static const uint32_t codes[] = { 906, 900, 201, 1, 999 };
    char settings[80];

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    forward(0, toy.streams[0]);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        gh_decision d;

        snprintf(settings, sizeof(settings),
                 "SEED=0 RACES=1 FAIL=cuStreamIsCapturing:1:%u", codes[i]);
        toy_configure(&toy, settings);
        d = forward(1, toy.streams[0]);
        is_int(d.action, GH_ACTION_RUN,
               "where cuStreamIsCapturing says %u a ready pass is not "
               "launched",
               codes[i]);
        is_int(d.reason, GH_REASON_HOST_CAPTURE, "and the reason says so");
        is_int(read_at(&out), 7, "it has run eagerly");
        is_int(forward(2, toy.streams[0]).action, GH_ACTION_REPLAYED,
               "and its graph is still there (%u)", codes[i]);
    }
    toy_close(&toy);
}

static void lose_capture(CUstream stream)
{
    toy.drv.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    toy.drv.cuStreamSynchronize(stream);
}

static void test_a_capture_that_is_lost(void)
{
    CUstream *s = toy.streams;
    gh_pass pass;
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    forward(0, s[0]);
    lose_capture(s[0]);
    pass = a_pass(0, GH_FORWARD, 1, s[0], &no_io);
    d = toy_empty_pass(&toy, &pass);
    is_int(d.reason, GH_REASON_HOST_CAPTURE,
           "a ready pass is not launched into a capture that is lost");
    is_int(end_capture(s[0]), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
           "whose host hears of it");
    run(0, GH_BACKWARD, 1, s[0]);
    is_int(forward(2, s[0]).action, GH_ACTION_REPLAYED,
           "and the graph is launched again after it");
    toy_close(&toy);

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    forward(0, s[0]);
    lose_capture(s[0]);
    ok(run(0, GH_FORWARD, 1, s[1]).action != UINT32_MAX,
       "a slot leaves a stream whose capture is lost: %s", err.text);
    end_capture(s[0]);
    toy_close(&toy);
}

/* The legacy stream would wait for the one that captures, and break it. */
static void test_an_implicit_capture(void)
{
    CUstream *s = toy.streams;
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1, .blocking = true })) {
        return;
    }
    forward(0, s[1]);
    forward(1, s[2]);
    toy.drv.cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    toy.drv.cuMemsetD8Async(toy.memory + 8192, 0, 4, s[0]);
    pass = a_pass(0, GH_FORWARD, 2, NULL, &no_io);
    is_int(toy_empty_pass(&toy, &pass).reason, GH_REASON_HOST_CAPTURE,
           "a pass on the legacy stream is eager while a stream that it "
           "would wait for is captured");
    is_int(end_capture(s[0]), CUDA_SUCCESS,
           "and no wait of its slot breaks that capture");
    toy_close(&toy);
}

/* What was marked before the capture began can be waited for all the same. */
static void test_a_mark_of_before_the_capture(void)
{
    CUstream *s = toy.streams;

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    run(0, GH_FORWARD, 9, s[2]);
    run_both(0, s[1]);
    run_both(1, s[0]);
    run(1, GH_FORWARD, 9, s[2]); /* the next pass that is entered marks it */
    toy.drv.cuStreamBeginCapture(s[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    is_int(run(0, GH_FORWARD, 2, s[1]).slot, 1,
           "a slot is given on while the host captures its last stream");
    is_int(toy_races(&toy), 0, "and waits for what was there before");
    is_int(end_capture(s[0]), CUDA_SUCCESS, "and the capture is whole");
    toy_close(&toy);
}

#define MANY 70

/* Those past the 63rd share what is known of them: all are asked. */
static void test_captures_past_the_last_edge(void)
{
    CUstream many[MANY];

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        toy.drv.cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING);
        run_both(0, many[i]);
    }
    for (uint32_t i = 62; i < MANY; i++) {
        toy.drv.cuStreamBeginCapture(many[i], CU_STREAM_CAPTURE_MODE_RELAXED);
        is_int(run(0, GH_FORWARD, 0, toy.streams[i % 2]).slot == 0, i == 62,
               "stream %u of the session is captured: a slot that was past "
               "the 63rd is %s",
               i, i == 62 ? "in reach" : "not");
        is_int(end_capture(many[i]), CUDA_SUCCESS, "and the capture is whole");
        run(0, GH_BACKWARD, 0, toy.streams[i % 2]);
        run_both(0, many[MANY - 1]);
    }
    toy_detach(&toy);
    for (uint32_t i = 0; i < MANY; i++) {
        toy.drv.cuStreamDestroy(many[i]);
    }
    toy_close(&toy);
}

/* A call that failed before the driver saw it has ended nothing. */
static void test_an_end_that_is_made_again(void)
{
    static const uint32_t codes[] = { 901, 908, 2 };
    CUstreamCaptureStatus capture;
    char settings[80];

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (!start((struct toy_options){ .layers = 1 })) {
            return;
        }
        snprintf(settings, sizeof(settings), "FAIL=cuStreamEndCapture:1:%u",
                 codes[i]);
        toy_configure(&toy, settings);
        is_int(forward(0, toy.streams[0]).reason, GH_REASON_CAPTURE,
               "a capture whose end says %u is given up", codes[i]);
        capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        toy.drv.cuStreamIsCapturing(toy.streams[0], &capture);
        is_int(capture, CU_STREAM_CAPTURE_STATUS_NONE,
               "and the stream is out of it");
        is_int(read_at(&out), 7, "so that the pass runs");
        is_int(toy_counts(&toy).graphs, 0, "and of its graph nothing is left");
        toy_close(&toy);
    }
}

/* ---- what is said ------------------------------------------------------ */

static void is_said(const char *settings, CUstream stream, const char *words)
{
    toy_configure(&toy, settings);
    said[0] = '\0';
    is_int(run(0, GH_FORWARD, 0, stream).action, GH_ACTION_RUN,
           "a recording fails: %s", settings);
    run(0, GH_BACKWARD, 0, stream);
    gh_iteration_end(toy.session, NULL);
    ok(times_said(words) == 1, "the log names the call: %s", said);
}

static void test_what_the_log_names(void)
{
    static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };
    static const struct {
        const char *settings, *words;
        bool legacy;
    } cases[] = {
        { "FAIL=cuStreamCreate:1", "cuStreamCreate: 999", true },
        { "FAIL=cuStreamBeginCapture:1", "cuStreamBeginCapture: 999", false },
        { "FAIL=cuStreamEndCapture:1", "cuStreamEndCapture: 999", false },
        { "FAIL=cuStreamEndCapture:1:901",
          "901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: this pass, or another "
          "thread meanwhile, made a call that may not be captured",
          false },
        { "FAIL=cuGraphGetNodes:1", "cuGraphGetNodes: 999", false },
        { "FAIL=cuGraphInstantiateWithFlags:1",
          "cuGraphInstantiateWithFlags: 999", false },
        { "FAIL=cuGraphUpload:1", "cuGraphUpload: 999", false },
        { "FAIL=cuGraphLaunch:1", "cuGraphLaunch: 999", false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!start((struct toy_options){
                .layers = 1, .host = &hearing, .environment = warning })) {
            return;
        }
        is_said(cases[i].settings, cases[i].legacy ? NULL : toy.streams[0],
                cases[i].words);
        toy_close(&toy);
    }
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    if (!toy.soft) {
        return skip_all("only the software device fails on demand");
    }
    test_a_driver_that_does_not_say();
    test_a_capture_that_is_lost();
    test_an_implicit_capture();
    test_a_mark_of_before_the_capture();
    test_captures_past_the_last_edge();
    test_an_end_that_is_made_again();
    test_what_the_log_names();
    return done_testing();
}
