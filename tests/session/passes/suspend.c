/*
 * A suspended session has given its memory back, and a resumed one trains on as
 * if it had not; what is in flight is named, and nothing runs without memory.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/hooks.h"
#include "support/orders.h"
#include "support/sweeps.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define GRANULE ((uint64_t)2 << 20)

static gh_memory_stats memory(void)
{
    gh_memory_stats stats = { .struct_size = sizeof(stats) };

    if (gh_memory_get_stats(toy.session, &stats, &err) != GH_OK) {
        ok(false, "memory is counted: %s", err.text);
    }
    return stats;
}

/* Whose it is, in all. */
static uint64_t parts(void)
{
    const gh_memory_stats m = memory();

    return m.slot_bytes + m.bank_bytes + m.offset_bytes + m.ring_bytes +
           m.kept_bytes + m.check_bytes + m.held_bytes + m.spare_bytes;
}

static void refuses(gh_status status, gh_status wanted, const char *words,
                    const char *name)
{
    ok(status == wanted && strstr(err.text, words) != NULL, "%s: %s", name,
       err.text);
}

/* Two layers, whose inputs are copied, past their recordings. */
static bool begin(struct toy_options options, const char *settings)
{
    const uint32_t counts[] = { 4, 4, 4 };

    options.layers = 2;
    options.copied_inputs = true;
    options.flags |= GH_SESSION_SUSPENDS;
    options.in_flight = options.in_flight == 0 ? 2 : options.in_flight;
    if (options.environment == NULL) {
        options.environment = quiet;
    }
    return toy_start(&toy, &options, settings) &&
           toy_train(&toy, counts, 3) == GH_OK;
}

static struct toy_options plain(void)
{
    return (struct toy_options){ .elems = 300, .streams = 2 };
}

/* No memory was used that was not there, or read before it was written. */
static void finish(const char *name)
{
    const char *text = NULL, *other = NULL;

    if (toy.soft) {
        ok(toy_unmapped(&toy, &text) == 0 && toy_unwritten(&toy, &other) == 0,
           "%s: all that is used is there, and written%s%s", name,
           text != NULL ? ": " : "",
           text != NULL    ? text
           : other != NULL ? other
                           : "");
        is_int(toy_races(&toy), 0, "%s: nothing races", name);
    }
    toy_close(&toy);
    if (toy.soft) {
        const softcuda_counts left = toy_counts(&toy);

        is_int(toy_objects(&left), 0, "%s: nothing is left", name);
    }
}

/* ---- refusals ------------------------------------------------------------ */

static void test_bad_arguments(void)
{
    gh_memory_stats stats = { .struct_size = sizeof(stats) };

    is_status(gh_session_suspend(NULL, &err), GH_ERR_INVALID, &err,
              "no session is suspended");
    is_status(gh_session_resume(NULL, &err), GH_ERR_INVALID, &err,
              "nor resumed");
    is_status(gh_memory_get_stats(NULL, &stats, &err), GH_ERR_INVALID, &err,
              "nor counted");
    if (!begin(plain(), "SEED=0")) {
        return;
    }
    is_status(gh_memory_get_stats(toy.session, NULL, &err), GH_ERR_INVALID,
              &err, "counts go somewhere");
    stats.struct_size = 8;
    is_status(gh_memory_get_stats(toy.session, &stats, &err), GH_ERR_ABI, &err,
              "and have a size that was released");
    refuses(gh_session_resume(toy.session, &err), GH_ERR_STATE,
            "is not suspended: call gh_session_suspend",
            "a session that is awake is not resumed");
    finish("bad arguments");
}

static void test_sessions_that_cannot(void)
{
    const uint32_t count = 3;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    refuses(gh_session_suspend(toy.session, &err), GH_ERR_UNSUPPORTED,
            "GH_SESSION_SUSPENDS in gh_session_desc.flags",
            "without the flag no session is suspended");
    toy_close(&toy);
    if (!toy.soft) {
        skip(3, "only the software device has a device without mapping");
        return;
    }
    if (!begin(plain(), "MAPPING=0")) {
        return;
    }
    refuses(gh_session_suspend(toy.session, &err), GH_ERR_UNSUPPORTED,
            "VIRTUAL_MEMORY_MANAGEMENT",
            "without mapping no session is suspended");
    ok(toy_train(&toy, &count, 1) == GH_OK && toy_is_exact(&toy),
       "but it trains");
    is_int(memory().device_bytes, toy_stats(&toy).static_bytes,
           "with memory of cuMemAlloc");
    toy_configure(&toy, "SEED=0");
    toy_close(&toy);
}

static void in_flight(const char *words, const char *name)
{
    refuses(gh_session_suspend(toy.session, &err), GH_ERR_STATE, words, name);
}

static void test_what_is_in_flight_is_named(void)
{
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };
    CUgraph graph = NULL;

    if (!begin(plain(), "SEED=0")) {
        return;
    }
    toy_forward(&toy, 0);
    toy_forward(&toy, 1);
    in_flight("microbatch 0 of chunk 0 is in flight",
              "two microbatches are in flight");
    toy_backward(&toy, 0);
    in_flight("microbatch 1 of chunk 0", "one is");
    toy_backward(&toy, 1);
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "none is, in the middle of a step");
    gh_session_resume(toy.session, NULL);

    pass = a_pass(0, GH_FORWARD, 3, toy.streams[0], &no_io);
    pass.flags = GH_PASS_FORWARD_ONLY;
    gh_layer_enter(toy.session, &pass, &d, NULL);
    in_flight("a pass is open, the forward of segment 0, microbatch 3",
              "a pass is open");
    gh_layer_exit(toy.session, &pass, NULL);

    begin_capture(NULL, toy.streams[0]);
    in_flight("the host is capturing stream", "the host captures");
    toy.drv.cuStreamEndCapture(toy.streams[0], &graph);
    toy.drv.cuGraphDestroy(graph);

    for (uint32_t m = 0; m < 9; m++) {
        toy_forward(&toy, m);
    }
    for (uint32_t m = 0; m < 8; m++) {
        toy_backward(&toy, m);
    }
    in_flight("microbatch 8 of chunk 0", "one without a slot is in flight");
    gh_iteration_end(toy.session, NULL);
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "a step that has ended leaves none");
    finish("in flight");
}

static void test_hooks_of_a_suspended_session(void)
{
    gh_stats stats = { .struct_size = sizeof(stats) };

    if (!begin(plain(), "SEED=0")) {
        return;
    }
    gh_session_suspend(toy.session, NULL);
    for (uint32_t i = 0; i < HOOKS; i++) {
        if (strcmp(hooks[i].name, "gh_session_resume") == 0) {
            continue;
        }
        ok(hooks[i].call(toy.session, &err) == GH_ERR_STATE &&
               strstr(err.text, "the session is suspended: call "
                                "gh_session_resume") != NULL,
           "%s: %s", hooks[i].name, err.text);
    }
    is_status(gh_session_stats(toy.session, &stats, &err), GH_OK, &err,
              "what is counted is told");
    is_int(memory().suspended, 1, "and that it is suspended");
    finish("closed while suspended");
}

/* ---- memory -------------------------------------------------------------- */

static void test_memory_is_given_back(void)
{
    const uint32_t counts[] = { 4, 3 };
    gh_memory_stats before, during, after;
    uint64_t bytes, recordings;

    if (!begin((struct toy_options){ .elems = 300000, .in_flight = 3 },
               "SEED=0")) {
        return;
    }
    before = memory();
    is_int(parts(), before.device_bytes, "its parts add up to its memory");
    ok(before.device_bytes >= toy_stats(&toy).static_bytes &&
           before.device_bytes < toy_stats(&toy).static_bytes * 2 + 2 * GRANULE,
       "regions have room for what is used: %llu of %llu",
       (unsigned long long)toy_stats(&toy).static_bytes,
       (unsigned long long)before.device_bytes);
    bytes = toy_counts(&toy).device_bytes;
    recordings = toy_stats(&toy).recordings;
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "the session is suspended");
    during = memory();
    is_int(during.device_bytes, 0, "it has no device memory");
    is_int(parts(), before.device_bytes,
           "the parts of its addresses add up to what it had");
    is_int(during.device_given, before.device_bytes, "it has given it all");
    if (toy.soft) {
        is_int(bytes - toy_counts(&toy).device_bytes, before.device_bytes,
               "the device has it back");
    }
    is_status(gh_session_resume(toy.session, &err), GH_OK, &err,
              "the session is resumed");
    after = memory();
    is_int(after.device_bytes, before.device_bytes, "and has as much again");
    ok(after.suspends == 1 && after.suspended == 0 && after.suspend_ns != 0 &&
           after.resume_ns != 0,
       "which is counted and timed");
    ok(toy_train(&toy, counts, 2) == GH_OK && toy_is_exact(&toy),
       "it trains on, exactly");
    is_int(toy_stats(&toy).recordings, recordings, "without a recording");
    finish("given back");
}

static void test_resume_without_memory(void)
{
    const uint32_t counts[] = { 4, 4 };
    CUdeviceptr taken = 0;
    char settings[64];
    uint64_t left;
    size_t free_bytes = 0, total = 0;

    if (!toy.soft) {
        skip(5, "only the software device can be filled");
        return;
    }
    if (!begin((struct toy_options){ .elems = 300000, .in_flight = 3 },
               "SEED=0")) {
        return;
    }
    gh_session_suspend(toy.session, NULL);
    left = toy_counts(&toy).device_bytes + 2 * GRANULE;
    snprintf(settings, sizeof(settings), "MEMORY=%llu",
             (unsigned long long)left);
    toy_configure(&toy, settings);
    is_status(gh_session_resume(toy.session, &err), GH_ERR_NO_MEMORY, &err,
              "a session is not resumed while others have the memory");
    toy.drv.cuMemGetInfo(&free_bytes, &total);
    is_int(free_bytes, 2 * GRANULE, "it takes none of it");
    ok(memory().suspended == 1 && memory().device_bytes == 0,
       "and is suspended still");
    toy_configure(&toy, "MEMORY=17179869184");
    is_status(gh_session_resume(toy.session, &err), GH_OK, &err,
              "once there is memory it is resumed");
    ok(toy_train(&toy, counts, 2) == GH_OK && toy_is_exact(&toy),
       "and trains on, exactly");
    toy.drv.cuMemFree(taken);
    finish("without memory");
}

/* Checks compare in memory that no graph knows, and that grows. */
static void test_memory_of_checks(void)
{
    const struct toy_options options = { .layers = 1,
                                         .elems = 4096,
                                         .in_flight = 1,
                                         .environment = checked,
                                         .flags = GH_SESSION_SUSPENDS };
    const uint32_t small[] = { 1, 1 }, large[] = { 0, 0 };
    uint64_t before, grown;
    gh_memory_stats all;

    if (!toy_start(&toy, &options, "SEED=0")) {
        return;
    }
    before = toy_counts(&toy).device_bytes;
    toy_add_tokens(&toy, 4096);
    toy_add_tokens(&toy, 64);
    for (uint32_t i = 0; i < 4; i++) {
        toy_step_shapes(&toy, small, 2);
    }
    for (uint32_t i = 0; i < 4; i++) {
        toy_step_shapes(&toy, large, 2);
    }
    ok(toy_stats(&toy).checks > 0, "passes are compared");
    grown = toy_counts(&toy).device_bytes;
    all = memory();
    ok(all.check_bytes != 0 && all.held_bytes != 0,
       "in memory that is counted, and in less before");
    is_int(parts(), all.device_bytes, "both are parts of the session's");
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "the session is suspended");
    is_int(memory().device_bytes, 0, "it has no memory to compare in");
    is_int(memory().device_given, all.device_bytes, "and has given it back");
    is_int(parts(), all.device_bytes - all.check_bytes - all.held_bytes,
           "which is no part of its addresses");
    if (toy.soft) {
        is_int((long long)(grown - before), (long long)all.device_bytes,
               "there was as much as was counted");
        is_int(toy_counts(&toy).device_bytes - before, 0,
               "nor any that it has outgrown");
    } else {
        skip(2, "only the software device counts its memory");
    }
    gh_session_resume(toy.session, NULL);
    is_int(memory().device_bytes, parts(), "its parts add up when it has it");
    ok(toy_step_shapes(&toy, large, 2) == GH_OK && toy_is_exact(&toy) &&
           toy_stats(&toy).check_failures == 0,
       "it compares again");
    toy_close(&toy);
}

/* What the host lends is the host's to give back. */
static void test_memory_that_the_host_lends(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .device_alloc = lend,
                                    .device_free = reuse };
    const uint32_t counts[] = { 4, 4 };

    if (!begin((struct toy_options){ .elems = 300, .host = &host }, "SEED=0")) {
        return;
    }
    ok(memory().device_bytes == 0 && memory().lent_bytes != 0,
       "all device memory is the host's");
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "the session is suspended");
    is_int(memory().device_given, 0, "it has nothing to give");
    gh_session_resume(toy.session, NULL);
    ok(toy_train(&toy, counts, 2) == GH_OK && toy_is_exact(&toy),
       "and trains on, exactly");
    toy_close(&toy);
}

static void test_without_a_driver(void)
{
    static const char *const env[] = { "GRAPHHOOKS_ENABLE=0",
                                       "GRAPHHOOKS_DRIVER=/nowhere/x.so",
                                       NULL };
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_model *model = toy_model(layer, 1, 1);
    const gh_session_desc desc = { .struct_size = sizeof(desc),
                                   .flags = GH_SESSION_SUSPENDS,
                                   .model = model,
                                   .environment = env };
    gh_session *session = NULL;

    is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
              "a session without a driver is opened");
    is_status(gh_session_suspend(session, &err), GH_OK, &err,
              "suspended, with nothing to give,");
    is_status(gh_session_resume(session, &err), GH_OK, &err, "and resumed");
    gh_session_close(session);
    gh_model_destroy(model);
}

/* ---- training ------------------------------------------------------------ */

struct shape {
    const char *name;
    struct toy_options options;
};

static const struct shape shapes[] = {
    { "one stream", { .layers = 2, .elems = 300, .in_flight = 2 } },
    { "two streams",
      { .layers = 2, .elems = 70, .in_flight = 3, .streams = 2 } },
    { "copied inputs",
      { .layers = 2, .elems = 300, .in_flight = 2, .copied_inputs = true } },
    { "moving inputs",
      { .layers = 2, .elems = 301, .in_flight = 2, .moving_inputs = true } },
    { "chunks",
      { .layers = 2, .elems = 65, .in_flight = 2, .granularity = "chunk" } },
    { "later weight gradients",
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .flags = GH_SESSION_DELAY_WGRAD,
        .wgrad = TOY_WGRAD_LATER,
        .wgrad_lag = 1 } },
    { "evaluations",
      { .layers = 2, .elems = 64, .in_flight = 2, .evaluates = true } },
    { "a host that never waits",
      { .layers = 2,
        .elems = 300,
        .in_flight = 3,
        .streams = 3,
        .copied_inputs = true,
        .free_running = true } },
};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void test_training_in_every_order(void)
{
    static const uint32_t counts[] = { 4, 6, 5, 3, 4 };
    const uint32_t seeds = orders_seeds(6);

    for (uint32_t s = 0; s < SHAPES; s++) {
        struct toy_suspensions all = { 0 };
        char settings[32];

        for (uint32_t seed = 0; seed < seeds; seed++) {
            struct toy_options options = shapes[s].options;

            options.suspends = 1 + seed * 7 + s;
            options.environment = quiet;
            snprintf(settings, sizeof(settings), "SEED=%u", seed);
            if (!toy_start(&toy, &options, settings)) {
                return;
            }
            toy_end_suspending(&toy, toy_train(&toy, counts, 5) == GH_OK,
                               shapes[s].name, seed, &all);
        }
        toy_judge_suspensions(shapes[s].name, &all);
    }
}

static void test_every_call_may_fail(void)
{
    static const struct toy_options options = { .layers = 1,
                                                .elems = 64,
                                                .in_flight = 2,
                                                .copied_inputs = true,
                                                .suspends = 5 };
    static const uint32_t counts[] = { 2, 2, 2, 2 };
    const struct sweep sweep = { .name = "suspended",
                                 .options = &options,
                                 .mode = "SEED=0",
                                 .counts = counts,
                                 .n_steps = 4,
                                 .most = 6 };

    sweep_all(&sweep);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_bad_arguments();
    test_sessions_that_cannot();
    test_what_is_in_flight_is_named();
    test_hooks_of_a_suspended_session();
    test_memory_is_given_back();
    test_resume_without_memory();
    test_memory_of_checks();
    test_memory_that_the_host_lends();
    test_without_a_driver();
    if (toy.soft) {
        test_training_in_every_order();
        test_every_call_may_fail();
    }
    return done_testing();
}
