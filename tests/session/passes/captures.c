/*
 * A stream that the host captures, has lost in a capture, or of which the
 * driver does not say: nothing is launched into it, and nothing waits for it.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <pthread.h>
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

/* ---- what another thread does ------------------------------------------- */

static void *wait_for_device(void *stream)
{
    (void)stream;
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy.drv.cuCtxSynchronize();
    return NULL;
}

/* One thread may end only a capture of its own: the pass's may be relaxed,
 * where the host captures. */
static void *end_the_capture(void *stream)
{
    toy.drv.cuCtxSetCurrent(toy.ctx);
    end_capture(stream);
    return NULL;
}

/* Spoils the next recordings. */
static uint32_t spoils, spoilt;
static void *(*spoil)(void *stream) = wait_for_device;
static bool cancels; /* the host does, as its work fails */

static gh_status pass_spoilt(const gh_pass *pass, gh_decision *d)
{
    gh_status status;

    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(toy.session, pass, d, &err);
    if (status != GH_OK) {
        return status;
    }
    if (d->action == GH_ACTION_RECORD && spoils > 0) {
        pthread_t thread;

        spoils--;
        spoilt++;
        pthread_create(&thread, NULL, spoil, d->stream);
        pthread_join(thread, NULL);
        if (cancels) {
            gh_layer_cancel(toy.session, NULL);
            return GH_RERUN;
        }
    }
    if (d->action != GH_ACTION_REPLAYED) {
        work(d, &writes_seven);
    }
    return gh_layer_exit(toy.session, pass, &err);
}

/* Until it need not run again. */
static gh_decision run_spoilt(gh_direction direction, CUstream stream,
                              const struct io *io)
{
    const gh_pass pass = a_pass(0, direction, 0, stream, io);
    gh_decision d;
    gh_status status;

    do {
        status = pass_spoilt(&pass, &d);
    } while (status == GH_RERUN);
    is_int(status, GH_OK, "a pass goes on: %s", err.text);
    return d;
}

static gh_decision spoilt_forward(CUstream stream)
{
    gh_decision d;

    out = buffer(0, 16, 0);
    toy.drv.cuMemsetD32Async((uintptr_t)out.address, 0, 4, stream);
    d = run_spoilt(GH_FORWARD, stream, &writes_seven);
    is_int(read_at(&out), 7, "and writes what it has to");
    run(0, GH_BACKWARD, 0, stream);
    return d;
}

static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };

static CUgraphExec host_exec; /* the only graph of the host's */

static gh_status host_end(void *user, void *stream, void **object_p,
                          void **graph_p)
{
    CUgraph graph = NULL;
    CUresult result = toy.drv.cuStreamEndCapture(stream, &graph);

    (void)user;
    (void)graph_p;
    if (result != CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    toy.drv.cuGraphInstantiateWithFlags(&host_exec, graph, 0);
    toy.drv.cuGraphDestroy(graph);
    *object_p = &host_exec;
    return GH_OK;
}

static gh_status host_launch(void *user, void *object, void *stream,
                             void **exec_p)
{
    (void)user;
    (void)object;
    (void)exec_p;
    return toy.drv.cuGraphLaunch(host_exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void host_destroy(void *user, void *object)
{
    (void)user;
    (void)object;
    toy.drv.cuGraphExecDestroy(host_exec);
    host_exec = NULL;
}

static gh_status host_begin_relaxed(void *user, void *stream)
{
    (void)user;
    return toy.drv.cuStreamBeginCapture(stream,
                                        CU_STREAM_CAPTURE_MODE_RELAXED) == 0
               ? GH_OK
               : GH_ERR_DEVICE;
}

static const struct spoilt_case {
    const char *what, *words;
    void *(*spoil)(void *stream);
    bool captures, cancels, legacy;
} spoilt_cases[] = {
    { "a wait of another thread", "901 ", wait_for_device, false, false,
      false },
    { "one that the host notices", "901 ", wait_for_device, false, true,
      false },
    { "one on the legacy stream", "901 ", wait_for_device, false, false,
      true },
    { "one where the host captures", "capture_end: GH_ERR_DEVICE",
      wait_for_device, true, false, false },
    { "a capture that another thread has ended", "capture_end: GH_ERR_DEVICE",
      end_the_capture, true, false, false },
};

static bool start_spoilt(const struct spoilt_case *how)
{
    static gh_host_services host;

    host = hearing;
    if (how->captures) {
        host.capture_begin = host_begin_relaxed;
        host.capture_end = host_end;
        host.launch = host_launch;
        host.destroy = host_destroy;
    }
    spoil = how->spoil;
    cancels = how->cancels;
    spoils = spoilt = 0;
    said[0] = '\0';
    return start((struct toy_options){
        .layers = 1, .host = &host, .environment = warning });
}

/* The pass itself has done nothing: it is recorded in the next step. */
static void test_spoilt_once(const struct spoilt_case *how)
{
    CUstream stream = how->legacy ? NULL : toy.streams[0];
    gh_decision d;

    if (!start_spoilt(how)) {
        return;
    }
    stream = how->legacy ? NULL : toy.streams[0];
    spoils = 1;
    for (int i = 0; i < 2; i++) {
        d = spoilt_forward(stream);
        is_int(d.action, GH_ACTION_RUN, "%s: the pass runs eagerly", how->what);
        is_int(d.reason, GH_REASON_WARMUP, "%s: for this step", how->what);
    }
    is_int(spoilt, 1, "%s: no recording is tried in it again", how->what);
    gh_iteration_end(toy.session, NULL);
    ok(times_said("to be recorded once more") == 1 &&
           times_said(how->words) == 1,
       "%s: which is said, with the reason: %s", how->what, said);
    is_int(spoilt_forward(stream).action, GH_ACTION_RECORD,
           "%s: in the next step it is recorded", how->what);
    gh_iteration_end(toy.session, NULL);
    is_int(spoilt_forward(stream).action, GH_ACTION_REPLAYED,
           "%s: and then replayed", how->what);
    is_int(toy_eager(&toy, GH_REASON_CAPTURE), 0, "%s: nothing is given up",
           how->what);
    toy_close(&toy);
}

static void test_spoilt_twice(const struct spoilt_case *how)
{
    CUstream stream;

    if (!start_spoilt(how)) {
        return;
    }
    stream = how->legacy ? NULL : toy.streams[0];
    spoils = 3;
    for (int i = 0; i < 4; i++) {
        gh_decision d = spoilt_forward(stream);

        is_int(d.reason,
               i == 0 ? GH_REASON_WARMUP : GH_REASON_CAPTURE,
               "%s: in step %d", how->what, i);
        gh_iteration_end(toy.session, NULL);
    }
    is_int(spoilt, 2, "%s: twice, and it is given up", how->what);
    is_int(times_said("from now on"), 1, "%s: which is said: %s", how->what,
           said);
    toy_close(&toy);
}

/* A recording that is whole begins a new count, for when it is made again: as
 * what the backward reads in place has moved. */
static void test_spoilt_again_after_a_graph(void)
{
    gh_buffer read[2];

    if (!start_spoilt(&spoilt_cases[0])) {
        return;
    }
    read[0] = out = buffer(0, 16, 0);
    read[1] = buffer(1, 16, 0);
    for (int i = 0; i < 4; i++) {
        const struct io io = { .inputs = &read[i / 2], .n_inputs = 1 };
        gh_decision d;

        run_with(0, GH_FORWARD, 0, toy.streams[0], &writes_seven);
        spoils = i % 2 == 0;
        d = run_spoilt(GH_BACKWARD, toy.streams[0], &io);
        is_int(d.reason, i % 2 == 0 ? GH_REASON_WARMUP : GH_REASON_NONE,
               "graph %d, step %d: eager in the step that is spoilt",
               i / 2 + 1, i % 2 + 1);
        is_int(d.action, i % 2 == 0 ? GH_ACTION_RUN : GH_ACTION_RECORD,
               "and recorded in the next");
        gh_iteration_end(toy.session, NULL);
    }
    is_int(spoilt, 2, "each of two graphs was spoilt once");
    toy_close(&toy);
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
    static const struct {
        const char *settings, *words;
        bool legacy;
    } cases[] = {
        { "FAIL=cuStreamCreate:1", "cuStreamCreate: 999", true },
        { "FAIL=cuStreamBeginCapture:1", "cuStreamBeginCapture: 999", false },
        { "FAIL=cuStreamEndCapture:1", "cuStreamEndCapture: 999", false },
        { "FAIL=cuStreamEndCapture:1:901",
          "901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: another thread has waited "
          "for the device, or this pass has waited",
          false },
        { "FAIL=cuStreamEndCapture:1:401",
          "401 CUDA_ERROR_ILLEGAL_STATE: another thread, or this pass, has "
          "ended the capture",
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
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_a_driver_that_does_not_say();
    test_a_capture_that_is_lost();
    test_an_implicit_capture();
    test_a_mark_of_before_the_capture();
    test_captures_past_the_last_edge();
    test_an_end_that_is_made_again();
    for (size_t i = 0; i < sizeof(spoilt_cases) / sizeof(spoilt_cases[0]);
         i++) {
        test_spoilt_once(&spoilt_cases[i]);
        test_spoilt_twice(&spoilt_cases[i]);
    }
    test_spoilt_again_after_a_graph();
    test_what_the_log_names();
    return done_testing();
}
