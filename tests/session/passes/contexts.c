/*
 * Which device a session is of, whose streams it takes, and what a thread's
 * context is afterwards.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The second device: its context, and a stream. */
static CUcontext other;
static CUstream elsewhere;

static CUcontext current(void)
{
    CUcontext ctx = NULL;

    toy.drv.cuCtxGetCurrent(&ctx);
    return ctx;
}

/* The toy on the first of two devices; its own session is closed. */
static bool start_two(void)
{
    if (!start((struct toy_options){ .layers = 1 })) {
        return false;
    }
    toy_detach(&toy);
    toy_configure(&toy, "DEVICES=2");
    toy.drv.cuDevicePrimaryCtxRetain(&other, 1);
    toy.drv.cuCtxSetCurrent(other);
    toy.drv.cuStreamCreate(&elsewhere, CU_STREAM_NON_BLOCKING);
    toy.drv.cuCtxSetCurrent(toy.ctx);
    return true;
}

static void end_two(void)
{
    toy_detach(&toy);
    toy.drv.cuCtxSetCurrent(other);
    toy.drv.cuStreamDestroy(elsewhere);
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy.drv.cuDevicePrimaryCtxRelease(1);
    toy_close(&toy);
}

static gh_status open_on(void *context, int32_t device)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = toy_driver(),
                             .context = context,
                             .device = device,
                             .environment = quiet };
    gh_model *model;
    gh_status status;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &layer, NULL);
    desc.model = model;
    status = gh_session_open(&desc, &toy.session, &err);
    gh_model_destroy(model);
    if (status != GH_OK) {
        toy.session = NULL;
    }
    return status;
}

/* It takes this device's streams and refuses the other's, by its name. */
static void is_on(int device, const char *how)
{
    CUstream mine = device == 0 ? toy.streams[0] : elsewhere;
    CUstream wrong = device == 0 ? elsewhere : toy.streams[0];
    char name[128] = "", words[200];

    toy.drv.cuDeviceGetName(name, sizeof(name), device);
    snprintf(words, sizeof(words), "session's device %d (%s)", device, name);
    ok(run(0, GH_FORWARD, 0, mine).action != UINT32_MAX,
       "%s: a session on device %d takes its streams", how, device);
    is_int(run(0, GH_FORWARD, 1, wrong).action, UINT32_MAX,
           "%s: and not the other device's", how);
    ok(strstr(err.text, words) != NULL, "%s: which is said: %s", how, err.text);
    toy_detach(&toy);
}

static void test_which_device(void)
{
    if (!start_two()) {
        return;
    }
    is_status(open_on(NULL, 1), GH_OK, &err, "no context is given");
    is_on(0, "the current one comes before the ordinal");
    toy.drv.cuCtxSetCurrent(other);
    is_status(open_on(NULL, 0), GH_OK, &err, "another one is current");
    is_on(1, "another one that is current");
    is_status(open_on(toy.ctx, 1), GH_OK, &err, "one is given");
    ok(current() == other, "the current one stays");
    is_on(0, "the one that is given comes first");
    toy.drv.cuCtxSetCurrent(NULL);
    is_status(open_on(other, 0), GH_OK, &err, "one is given, none is current");
    ok(current() == NULL, "none is afterwards");
    is_on(1, "the one that is given where none is current");
    is_status(open_on(NULL, 1), GH_OK, &err, "none is given nor current");
    ok(current() == NULL, "a session that has opened leaves it so");
    is_on(1, "the ordinal decides");
    ok(current() == NULL, "as does one that is closed");
    end_two();
}

static void test_ordinals(void)
{
    uint64_t before;

    if (!start_two()) {
        return;
    }
    toy.drv.cuCtxSetCurrent(NULL);
    before = toy_counts(&toy).contexts_retained;
    is_status(open_on(NULL, 2), GH_ERR_NO_DRIVER, &err,
              "of two devices there is no number 2");
    ok(strstr(err.text, "gh_session_desc.device is 2, but the driver has 2 "
                        "devices") != NULL,
       "which is said: %s", err.text);
    is_status(open_on(NULL, -1), GH_ERR_NO_DRIVER, &err, "nor a number -1");
    ok(strstr(err.text, "gh_session_desc.device is -1") != NULL,
       "which is said: %s", err.text);
    is_int(toy_counts(&toy).contexts_retained, before,
           "and nothing is retained");
    end_two();
}

/* A session that does not open has changed nothing. */
static void test_an_open_that_fails(void)
{
    static const struct {
        const char *settings, *words;
        gh_status status;
    } cases[] = {
        { "FAIL=cuInit:1", "cuInit: 999", GH_ERR_NO_DRIVER },
        { "FAIL=cuDevicePrimaryCtxRetain:1", "cuDevicePrimaryCtxRetain: 999",
          GH_ERR_DEVICE },
        { "FAIL=cuCtxSetCurrent:1,cuCtxSetCurrent:2", "cuCtxSetCurrent: 999",
          GH_ERR_DEVICE },
        { "FAIL=cuCtxGetDevice:1", "cuCtxGetDevice: 999", GH_ERR_DEVICE },
        { "FAIL=cuModuleLoadData:1", "cuModuleLoadData: 999", GH_ERR_DEVICE },
        { "FAIL=cuModuleGetFunction:1", "cuModuleGetFunction: 999",
          GH_ERR_DEVICE },
        { "FAIL=cuModuleGetFunction:2", "cuModuleGetFunction: 999",
          GH_ERR_DEVICE },
        { "FAIL=cuModuleGetFunction:3", "cuModuleGetFunction: 999",
          GH_ERR_DEVICE },
        { "FAIL=cuMemAlloc:1", "cuMemAlloc: 999", GH_ERR_DEVICE },
        { "FAIL=cuMemAlloc:1:1", "cuMemAlloc: 1 CUDA_ERROR_INVALID_VALUE",
          GH_ERR_DEVICE },
        { "FAIL=cuMemAlloc:1:2", "cuMemAlloc: 2 CUDA_ERROR_OUT_OF_MEMORY",
          GH_ERR_NO_MEMORY },
    };

    if (!start_two()) {
        return;
    }
    toy.drv.cuCtxSetCurrent(NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *what = cases[i].settings + strlen("FAIL=");
        const softcuda_counts before = toy_counts(&toy);
        softcuda_counts after;

        toy_configure(&toy, cases[i].settings);
        is_status(open_on(NULL, 0), cases[i].status, &err,
                  "%s: no session is opened", what);
        toy_configure(&toy, "");
        after = toy_counts(&toy);
        ok(strstr(err.text, cases[i].words) != NULL, "%s: it is said: %s", what,
           err.text);
        is_int(after.contexts_retained, before.contexts_retained,
               "%s: no context stays retained", what);
        is_int(after.modules + after.device_allocations,
               before.modules + before.device_allocations,
               "%s: nothing stays allocated", what);
        ok(current() == NULL, "%s: none is current as before", what);
    }
    end_two();
}

static void test_a_stream_that_is_not_known(void)
{
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy_configure(&toy, "FAIL=cuStreamGetCtx:1");
    is_int(run(0, GH_FORWARD, 0, toy.streams[0]).action, UINT32_MAX,
           "a stream of which the driver says nothing is refused");
    ok(strstr(err.text, "cuStreamGetCtx: 999") != NULL,
       "with the driver's code: %s", err.text);
    is_int(run(0, GH_FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "and taken when it says that it is the session's");
    toy_close(&toy);
}

/* ---- the legacy stream ------------------------------------------------- */

static void test_the_legacy_stream_of_another_device(void)
{
    if (!start_two()) {
        return;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        if (open_on(toy.ctx, 0) != GH_OK) {
            ok(false, "a session opens: %s", err.text);
            break;
        }
        if (turn == 1) {
            ok(run(0, GH_FORWARD, 0, NULL).action != UINT32_MAX,
               "the legacy stream of the session's device is taken");
        }
        toy.drv.cuCtxSetCurrent(other);
        is_int(run(0, GH_FORWARD, 1, NULL).action, UINT32_MAX,
               "the legacy stream of another device is refused, %s",
               turn == 0 ? "as the first one" : "also after that");
        ok(strstr(err.text, "make the session's current") != NULL,
           "with what to do: %s", err.text);
        toy.drv.cuCtxSetCurrent(toy.ctx);
        toy_detach(&toy);
    }
    end_two();
}

static void test_names_of_the_legacy_stream(void)
{
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    is_int(run(0, GH_FORWARD, 0, CU_STREAM_LEGACY).action, GH_ACTION_RECORD,
           "CU_STREAM_LEGACY is recorded as NULL is");
    run(0, GH_BACKWARD, 0, CU_STREAM_LEGACY);
    is_int(run(0, GH_FORWARD, 1, CU_STREAM_LEGACY).action, GH_ACTION_REPLAYED,
           "and replayed");
    run(0, GH_BACKWARD, 1, CU_STREAM_LEGACY);
    toy.drv.cuCtxSetCurrent(NULL);
    is_int(run(0, GH_FORWARD, 2, NULL).reason, GH_REASON_HOST_CAPTURE,
           "on a thread without a context it is not known, and eager");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy_close(&toy);
}

/* The first stream that a slot was on may be the legacy one. */
static void test_a_slot_that_begins_on_the_legacy_stream(void)
{
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(0, NULL);
    run(0, GH_FORWARD, 1, toy.streams[0]);
    is_int(toy_races(&toy), 0,
           "a slot that goes from the legacy stream to another waits");
    toy_close(&toy);
}

/* ---- threads without a context ----------------------------------------- */

struct visit {
    gh_decision recorded, given_up, replayed;
    bool was_left_alone;
};

static void *visit(void *user)
{
    struct visit *visit = user;
    gh_buffer in = buffer(0, 256, 0);
    const gh_buffer out = buffer(3, 256, 0);
    const struct io io = { &in, &out, 1, 1, 7 };
    gh_pass pass = a_pass(0, GH_FORWARD, 1, toy.streams[0], &io);

    visit->recorded = run_with(0, GH_FORWARD, 0, toy.streams[0], &io);
    visit->given_up = (gh_decision){ .struct_size = sizeof(gh_decision) };
    gh_layer_enter(toy.session, &pass, &visit->given_up, &err);
    work(&visit->given_up, &io);
    gh_layer_cancel(toy.session, &err);
    run(0, GH_BACKWARD, 0, toy.streams[0]);
    in = buffer(2, 256, 0);
    visit->replayed = run_with(0, GH_FORWARD, 0, toy.streams[0], &io);
    visit->was_left_alone = current() == NULL;
    return NULL;
}

static void test_a_thread_without_a_context(const char *const *environment)
{
    struct visit v;
    pthread_t thread;
    uint64_t before;

    if (!start(
            (struct toy_options){ .layers = 1, .environment = environment })) {
        return;
    }
    before = toy_counts(&toy).device_allocations;
    pthread_create(&thread, NULL, visit, &v);
    pthread_join(thread, NULL);
    is_int((long)toy_stats(&toy).recordings, 2,
           "a thread without a context records a pass with an input");
    is_int(v.given_up.action, GH_ACTION_RECORD, "gives one up");
    if (environment == checked) {
        is_int(v.replayed.reason, GH_REASON_CHECK, "has one compared");
        is_int(toy_stats(&toy).check_failures, 0, "which is equal");
    } else {
        is_int(v.replayed.action, GH_ACTION_REPLAYED, "replays the other");
        is_int(toy_counts(&toy).device_allocations - before, 1,
               "and leaves one buffer, of the graph that is there");
    }
    ok(v.was_left_alone, "and has no context afterwards");
    toy_close(&toy);
}

int main(void)
{
    int status;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_which_device();
    test_ordinals();
    test_an_open_that_fails();
    test_a_stream_that_is_not_known();
    test_the_legacy_stream_of_another_device();
    test_names_of_the_legacy_stream();
    test_a_slot_that_begins_on_the_legacy_stream();
    test_a_thread_without_a_context(quiet);
    test_a_thread_without_a_context(checked);
    return done_testing();
}
