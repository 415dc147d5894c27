/*
 * Offload, banks and packed sequences go on after their memory was given back,
 * wherever that is legal.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/orders.h"
#include "support/saving.h"
#include "support/sweeps.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static gh_memory_stats memory(void)
{
    gh_memory_stats stats = { .struct_size = sizeof(stats) };

    gh_memory_get_stats(sv.session, &stats, NULL);
    return stats;
}

/* ---- what is given back -------------------------------------------------- */

static void test_rings_and_pinned_memory(void)
{
    const struct toy_options options = { .layers = 4,
                                         .modules = 3,
                                         .tensors = 2,
                                         .elems = 4096,
                                         .in_flight = 3,
                                         .environment = silent,
                                         .flags = GH_SESSION_SUSPENDS };
    softcuda_counts before, during;
    gh_memory_stats had, has;
    uint64_t recordings;

    if (!open_with(&options)) {
        return;
    }
    ok(steps(4, 4), "a host offloads");
    recordings = toy_stats(&sv).recordings;
    had = memory();
    before = toy_counts(&sv);
    is_status(gh_session_suspend(sv.session, &sv.err), GH_OK, &sv.err,
              "its session is suspended");
    has = memory();
    during = toy_counts(&sv);
    ok(had.pinned_bytes != 0 && has.pinned_given == had.pinned_bytes &&
           has.pinned_bytes == 0,
       "all pinned memory is given back");
    ok(has.device_given == had.device_bytes && has.device_bytes == 0,
       "and all device memory");
    if (sv.soft) {
        is_int(before.device_bytes - during.device_bytes, had.device_bytes,
               "the device has that");
        is_int(before.host_bytes - during.host_bytes, had.pinned_bytes,
               "and the host has the other");
    }
    is_status(gh_session_resume(sv.session, &sv.err), GH_OK, &sv.err,
              "it is resumed");
    is_int(memory().pinned_bytes, had.pinned_bytes, "with as much");
    ok(steps(3, 4) && is_right(), "and trains on, exactly");
    is_int(toy_stats(&sv).recordings, recordings, "without a recording");
    toy_detach(&sv);
    is_int(left_over(), 0, "nothing is left");
    toy_close(&sv);
}

static void test_a_group_in_flight_is_named(void)
{
    const struct toy_options options = { .layers = 2,
                                         .modules = 1,
                                         .tensors = 1,
                                         .elems = 64,
                                         .in_flight = 2,
                                         .environment = silent,
                                         .flags = GH_SESSION_SUSPENDS };

    if (!open_with(&options)) {
        return;
    }
    steps(3, 2);
    toy_forward(&sv, 0);
    ok(gh_session_suspend(sv.session, &sv.err) == GH_ERR_STATE &&
           strstr(sv.err.text, "microbatch 0 of chunk 0 is in flight") != NULL,
       "a microbatch with a group: %s", sv.err.text);
    toy_backward(&sv, 0);
    is_status(gh_session_suspend(sv.session, &sv.err), GH_OK, &sv.err,
              "without it the session is suspended");
    gh_session_resume(sv.session, NULL);
    toy_end_step(&sv);
    ok(steps(2, 2) && is_right(), "and trains on, exactly");
    toy_close(&sv);
}

/* An evaluation that has saved a group and not committed it. */
static void test_a_group_of_no_microbatch_is_named(void)
{
    static const char *const offloads[] = { "GRAPHHOOKS_LOG=off",
                                            "GRAPHHOOKS_OFFLOAD=core_attn",
                                            "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1",
                                            NULL };
    gh_offload_tensor tensor = { NULL, 256 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .environment = offloads,
                                     .flags = GH_SESSION_SUSPENDS })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    pass.flags = GH_PASS_FORWARD_ONLY;
    gh_layer_enter(toy.session, &pass, &d, NULL);
    is_status(gh_offload_save(toy.session, &group, &err), GH_OK, &err,
              "an evaluation saves a group");
    gh_layer_exit(toy.session, &pass, NULL);
    ok(gh_session_suspend(toy.session, &err) == GH_ERR_STATE &&
           strstr(err.text, "layer 0, core_attn of microbatch 0 is saved and "
                            "not released") != NULL,
       "which is in flight: %s", err.text);
    gh_iteration_end(toy.session, NULL);
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "until its step ends");
    toy_close(&toy);
}

static void test_sequences_without_a_slot_are_named(void)
{
    static const int32_t lengths[] = { 3 };
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = 64,
                                .sequences = 4 };
    gh_packed packed = { .struct_size = sizeof(packed),
                         .flags = GH_PASS_FORWARD_ONLY,
                         .n_sequences = 1,
                         .lengths = lengths };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    if (!start((struct toy_options){ .flags = GH_SESSION_SUSPENDS })) {
        return;
    }
    gh_bank_add(toy.session, &desc, &packed.bank, NULL);
    packed.stream = toy.streams[0];
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err), GH_OK, &err,
              "an evaluation gets its sequences");
    ok(gh_session_suspend(toy.session, &err) == GH_ERR_STATE &&
           strstr(err.text, "has its sequences") != NULL,
       "which are in flight: %s", err.text);
    gh_iteration_end(toy.session, NULL);
    is_status(gh_session_suspend(toy.session, &err), GH_OK, &err,
              "until its step ends");
    gh_session_resume(toy.session, NULL);
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err), GH_OK, &err,
              "the arrays are written again");
    toy_close(&toy);
}

/* Pinned memory that is not there: none of the device's is taken either. */
static void test_resume_without_pinned_memory(void)
{
    const struct toy_options options = { .layers = 4,
                                         .modules = 3,
                                         .tensors = 2,
                                         .elems = 64,
                                         .in_flight = 3,
                                         .environment = silent,
                                         .flags = GH_SESSION_SUSPENDS };

    if (!sv.soft) {
        skip(3, "only the software device refuses memory on demand");
        return;
    }
    if (!open_with(&options)) {
        return;
    }
    steps(3, 3);
    gh_session_suspend(sv.session, NULL);
    toy_configure(&sv, "FAIL=cuMemAllocHost:1:2");
    is_status(gh_session_resume(sv.session, &sv.err), GH_ERR_NO_MEMORY, &sv.err,
              "a block is not there");
    ok(memory().device_bytes == 0 && memory().suspended == 1,
       "the session has nothing");
    toy_configure(&sv, "SEED=0");
    is_status(gh_session_resume(sv.session, &sv.err), GH_OK, &sv.err,
              "the second time all are");
    ok(steps(2, 3) && is_right(), "and it trains on, exactly");
    toy_close(&sv);
}

/* ---- in every order ------------------------------------------------------ */

static const char *const delayed[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };
static const char *const compared[] = { "GRAPHHOOKS_LOG=off",
                                        "GRAPHHOOKS_CHECK=bitwise", NULL };
static const char *const two_banks[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_MAX_BANKS=2", NULL };

static const struct shape {
    const char *name;
    uint32_t words[3]; /* of microbatches, in banks of their own */
    struct toy_options options;
} shapes[] = {
    { "groups",
      { 0 },
      { .layers = 3,
        .elems = 64,
        .in_flight = 3,
        .modules = 3,
        .tensors = 2 } },
    { "groups of two streams",
      { 0 },
      { .layers = 2,
        .elems = 100,
        .in_flight = 3,
        .streams = 2,
        .modules = 2,
        .tensors = 2,
        .free_running = true } },
    { "the host's own groups",
      { 0 },
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .modules = 3,
        .tensors = 2,
        .own = true } },
    { "commits that wait",
      { 0 },
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .modules = 3,
        .tensors = 1,
        .flushes = true,
        .environment = delayed } },
    { "groups in evaluations",
      { 0 },
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .modules = 2,
        .tensors = 1,
        .evaluates = true } },
    { "groups and later weight gradients",
      { 0 },
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .modules = 2,
        .tensors = 1,
        .flags = GH_SESSION_DELAY_WGRAD,
        .wgrad = TOY_WGRAD_BESIDE,
        .streams = 1 } },
    { "compared passes",
      { 0 },
      { .layers = 2,
        .elems = 64,
        .in_flight = 2,
        .copied_inputs = true,
        .environment = compared } },
    { "banks",
      { 300, 128, 70 },
      { .layers = 2, .elems = 300, .in_flight = 2, .copied_inputs = true } },
    { "banks that give way",
      { 300, 128, 70 },
      { .layers = 2,
        .elems = 300,
        .in_flight = 2,
        .copied_inputs = true,
        .environment = two_banks } },
    { "capacities",
      { 300, 128, 70 },
      { .layers = 2, .elems = 300, .in_flight = 2, .by_capacity = true } },
    { "banks and groups",
      { 128, 64, 32 },
      { .layers = 2,
        .elems = 128,
        .in_flight = 2,
        .modules = 2,
        .tensors = 2,
        .copied_inputs = true } },
};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint32_t next(uint32_t *noise)
{
    *noise = *noise * 1664525u + 1013904223u;
    return *noise >> 16;
}

static gh_status train(const struct shape *shape, uint32_t noise)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < 3 && shape->words[i] != 0; i++) {
        toy_add_tokens(&toy, shape->words[i]);
    }
    for (uint32_t step = 0; step < 7 && status == GH_OK; step++) {
        const uint32_t n = 2 + next(&noise) % 4;
        uint32_t of[8];

        for (uint32_t m = 0; m < n; m++) {
            of[m] = step == 0 ? 0 : next(&noise) % 3; /* the largest first */
        }
        toy.less = shape->options.by_capacity ? next(&noise) % 60 : 0;
        status = shape->words[0] != 0 ? toy_step_shapes(&toy, of, n)
                                      : toy_step(&toy, n);
    }
    return status;
}

static void test_training_in_every_order(void)
{
    const uint32_t seeds = orders_seeds(5);

    for (uint32_t s = 0; s < SHAPES; s++) {
        struct toy_suspensions all = { 0 };
        char settings[32];

        for (uint32_t seed = 0; seed < seeds; seed++) {
            struct toy_options options = shapes[s].options;

            options.suspends = 1 + seed * 11 + s;
            if (options.environment == NULL) {
                options.environment = quiet;
            }
            snprintf(settings, sizeof(settings), "SEED=%u", seed);
            if (!toy_start(&toy, &options, settings)) {
                return;
            }
            toy_end_suspending(&toy,
                               train(&shapes[s], seed * 5 + s) == GH_OK,
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
                                                .modules = 2,
                                                .tensors = 1,
                                                .environment = delayed,
                                                .suspends = 5 };
    static const uint32_t counts[] = { 2, 2, 2, 2 };
    const struct sweep sweep = { .name = "offloading and suspended",
                                 .options = &options,
                                 .mode = "SEED=0",
                                 .counts = counts,
                                 .n_steps = 4,
                                 .most = 5 };

    sweep_all(&sweep);
}

int main(void)
{
    const char *reason;
    bool soft;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    soft = toy.soft;
    sv.soft = soft;
    test_rings_and_pinned_memory();
    test_a_group_in_flight_is_named();
    test_a_group_of_no_microbatch_is_named();
    test_sequences_without_a_slot_are_named();
    test_resume_without_pinned_memory();
    if (soft) {
        test_training_in_every_order();
        test_every_call_may_fail();
    }
    return done_testing();
}
