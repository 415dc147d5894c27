/*
 * Groups in memory of the host's own come back bit for bit, and the host has
 * each block again once.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const struct toy_options four_layers = { .layers = 4,
                                                .modules = 3,
                                                .tensors = 2,
                                                .elems = 256,
                                                .in_flight = 3,
                                                .own = true };

static uint32_t n_leaks;

static void train(const struct toy_options *options, const char *what)
{
    gh_offload_stats moved;
    gh_stats stats;

    if (!open_with(options)) {
        return;
    }
    ok(trains(), "%s: every sum is exact, and nothing is raced for", what);
    moved = toy_moved(&sv);
    stats = toy_stats(&sv);
    ok(moved.out_copies > 0 && moved.back_copies > 0,
       "%s: %llu copies go out, %llu come back", what,
       (unsigned long long)moved.out_copies,
       (unsigned long long)moved.back_copies);
    ok(stats.replays > 0 && stats.check_failures == 0,
       "%s: %llu passes are replayed", what, (unsigned long long)stats.replays);
    toy_detach(&sv);
    n_leaks += left_over() != 0;
    ok(sv.lender.lent > 0 && all_are_back(),
       "%s: each of %llu blocks is the host's again, once", what,
       (unsigned long long)sv.lender.lent);
    toy_close(&sv);
}

static void test_training(void)
{
    static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1",
                                           NULL };
    static const char *const comparing[] = { "GRAPHHOOKS_CHECK=bitwise",
                                             "GRAPHHOOKS_LOG=off", NULL };
    static const char *const one_slot[] = { "GRAPHHOOKS_LOG=off", NULL };
    struct toy_options o = four_layers;

    for (int unlent = 0; unlent < 2; unlent++) {
        o = four_layers;
        o.unlent = unlent != 0;
        train(&o, "layers");
        o.granularity = "part";
        train(&o, "parts");
        o.granularity = "chunk";
        train(&o, "a chunk");
        o.chunks = 2;
        train(&o, "two chunks");
        o.chunks = 1;
        o.granularity = "layer";
        o.streams = 3;
        o.free_running = true;
        train(&o, "three streams");
        o.last_first = true;
        train(&o, "three streams, the last backward first");
        o.max_slots = 1;
        o.environment = one_slot;
        train(&o, "three streams and one slot");
        o = four_layers;
        o.unlent = unlent != 0;
        o.environment = delayed;
        train(&o, "delayed");
        o.flushes = true;
        train(&o, "delayed and flushed");
        o = four_layers;
        o.unlent = unlent != 0;
        o.environment = comparing;
        train(&o, "compared");
        o.granularity = "chunk";
        train(&o, "a chunk, compared");
        o = four_layers;
        o.unlent = unlent != 0;
        o.evaluates = true;
        o.streams = 3;
        o.in_flight = 2;
        o.free_running = true;
        train(&o, "evaluations on three streams");
        o.offload = asks("core_attn");
        train(&o, "evaluations on three streams, most groups stay");
        o.evaluates = false;
        o.max_slots = 1;
        o.environment = one_slot;
        train(&o, "one slot, three streams, most groups stay");
        o.environment = comparing;
        o.max_slots = 3;
        train(&o, "most groups stay, compared");
        o = four_layers;
        o.unlent = unlent != 0;
        o.at_once = true;
        train(&o, "all groups of a layer at once");
        o = four_layers;
        o.unlent = unlent != 0;
        o.side_by_side = true;
        o.streams = 3;
        o.free_running = true;
        train(&o, "backwards side by side");
        o = four_layers;
        o.unlent = unlent != 0;
        o.offload = (gh_offload_desc){ .struct_size = 1,
                                       .modules = TOY_MODULES,
                                       .min_bytes = 600 };
        train(&o, "small tensors stay");
        o.views = true;
        train(&o, "views of one tensor, which are small");
        o.offload = asks("own_b");
        o.environment = comparing;
        train(&o, "views of one tensor, most groups stay, compared");
        o = four_layers;
        o.unlent = unlent != 0;
        o.offload = (gh_offload_desc){ .struct_size = 1,
                                       .modules = TOY_MODULES,
                                       .min_bytes = 600 };
        o.scope = "attn";
        train(&o, "graphs of one part, small tensors stay");
        o.offload = asks("own_a");
        train(&o, "graphs of one part, most groups stay");
    }
}

/* A group that is several tensors of one storage is one copy. */
static void test_views_go_once(void)
{
    struct toy_options o = four_layers;
    gh_offload_stats plain, views;

    if (!open_with(&o)) {
        return;
    }
    trains();
    plain = toy_moved(&sv);
    toy_close(&sv);
    o.views = true;
    if (!open_with(&o)) {
        return;
    }
    ok(trains(), "views of one tensor: every sum is exact");
    views = toy_moved(&sv);
    is_int(2 * views.out_copies, plain.out_copies,
           "views of one tensor go in its copy");
    is_int(3 * views.out_bytes, 2 * plain.out_bytes,
           "and take no bytes of their own");
    is_int(3 * views.back_bytes, 2 * plain.back_bytes,
           "neither on their way back");
    is_int(3 * views.pinned_bytes, 2 * plain.pinned_bytes,
           "nor in pinned memory");
    toy_close(&sv);
}

/* Passes of one direction, or some of both, have no graph. */
static void train_mixed(const struct toy_options *options, const char *what)
{
    uint32_t wrong = 0, n = 0, half = 0;

    for (n = 1; n <= 14; n++) {
        char settings[64];
        gh_stats stats;
        bool right;

        if (!open_with(options)) {
            return;
        }
        snprintf(settings, sizeof(settings), "RACES=1 FAIL=cuStreamEndCapture:%u",
                 n);
        toy_configure(&sv, settings);
        right = trains();
        stats = toy_stats(&sv);
        half += stats.replays > 0 && stats.reruns > 0;
        toy_detach(&sv);
        if (!right || !all_are_back() || stats.check_failures != 0) {
            diag("%s, capture %u", what, n);
            wrong++;
        }
        toy_close(&sv);
    }
    is_int(wrong, 0,
           "%s: right whichever pass has no graph, and every block is back",
           what);
    ok(half > 3, "%s: %u times another pass had one", what, half);
}

static void test_mixed(void)
{
    static const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const comparing[] = { "GRAPHHOOKS_CHECK=bitwise",
                                             "GRAPHHOOKS_LOG=off", NULL };
    struct toy_options o = four_layers;

    o.environment = silent;
    o.max_slots = 3;
    train_mixed(&o, "some passes without a graph");
    o.granularity = "chunk";
    train_mixed(&o, "a chunk, one direction without a graph");
    o.offload = asks("core_attn");
    train_mixed(&o, "a chunk, most groups stay");
    o.granularity = "layer";
    o.streams = 3;
    o.free_running = true;
    train_mixed(&o, "three streams, most groups stay");
    o.environment = comparing;
    train_mixed(&o, "most groups stay, compared");
    o.environment = silent;
    o.offload = (gh_offload_desc){ .struct_size = 1,
                                   .modules = TOY_MODULES,
                                   .min_bytes = 600 };
    train_mixed(&o, "three streams, small tensors stay");
    o.unlent = true;
    train_mixed(&o, "no service, small tensors stay");
    o.offload = asks("core_attn");
    train_mixed(&o, "no service, most groups stay");
}

/* What the host's allocator has to have for the first step, which is eager. */
static uint64_t bytes_of_a_step(const char *modules)
{
    static const uint32_t four = 4;
    struct toy_options o = four_layers;
    uint64_t bytes;

    o.in_flight = 4;
    o.offload = asks(modules);
    o.waits = true;
    if (!open_with(&o)) {
        return 0;
    }
    ok(run_steps(&four, 1) && toy_is_exact(&sv), "%s: the first step is right",
       modules);
    bytes = lender_bytes(&sv.lender, true);
    toy_close(&sv);
    return bytes;
}

/* A block is back soon after its commit. */
static void test_memory(void)
{
    const uint64_t kept = bytes_of_a_step("mlp_norm");
    const uint64_t moved = bytes_of_a_step(TOY_MODULES);

    is_int(kept, 16 * moved,
           "blocks for one layer of one microbatch are enough, and not for "
           "four of four");
}

/* Groups that are larger than in the first step stay where they are, and
 * smaller ones go. */
static void test_sizes_change(void)
{
    static const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const uint32_t three[] = { 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t copied;

    o.environment = silent;
    for (int unlent = 0; unlent < 2; unlent++) {
        o.unlent = unlent != 0;
        if (!open_with(&o)) {
            return;
        }
        run_steps(three, 1);
        sv.grows = true;
        sv.tries_again = true;
        copied = toy_moved(&sv).out_copies;
        ok(run_steps(three, 3) && toy_is_exact(&sv),
           "groups that have grown are right");
        is_int(toy_moved(&sv).out_copies, copied, "and stay");
        ok((toy_moved(&sv).kept_bytes == 0) == !o.unlent,
           "in %s memory: the library has %llu bytes for them",
           unlent ? "the library's" : "the host's",
           (unsigned long long)toy_moved(&sv).kept_bytes);
        sv.grows = false;
        sv.words[1] = 128;
        ok(run_steps(three, 3) && toy_is_exact(&sv),
           "groups that have shrunk are right");
        ok(toy_moved(&sv).out_copies > copied, "and go");
        sv.words[1] = 0;
        ok(run_steps(three, 3) && toy_is_exact(&sv) && toy_races(&sv) == 0,
           "and so are those that are as they were");
        toy_detach(&sv);
        ok(unlent || all_are_back(), "each block is back, once");
        toy_close(&sv);
    }
}

static bool has_entry(const char *name)
{
    softcuda_entry_fn *entry_at =
        (softcuda_entry_fn *)toy_control(&sv, "softcuda_entry");
    const char *entry;

    for (uint32_t i = 0; (entry = entry_at(i)) != NULL; i++) {
        if (strcmp(entry, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Groups that wait for a flush, and groups of several tensors, are one call
 * where the driver has it. */
static void test_batches(void)
{
    static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1",
                                           NULL };
    static const char entry[] = "cuMemcpyBatchAsync_v2";
    struct toy_options o = four_layers;
    uint64_t batches;

    for (int own = 0; own < 2; own++) {
        o.own = own != 0;
        o.environment = delayed;
        if (!open_with(&o)) {
            return;
        }
        if (!sv.soft || !has_entry(entry)) {
            skip(2, "the driver has no batches to count");
            toy_close(&sv);
            continue;
        }
        ok(trains(), "copies in batches: every sum is exact");
        batches = toy_calls(&sv, entry);
        is_int(batches, toy_moved(&sv).flushes,
               "each flush is one call, %llu of them",
               (unsigned long long)batches);
        toy_close(&sv);
    }
}

int main(void)
{
    const char *reason;
    struct toy probe;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    test_training();
    is_int(n_leaks, 0, "every session gives back all that it has made");
    test_views_go_once();
    if (probe.soft) {
        test_mixed();
    } else {
        skip(16, "only the software device fails on demand");
    }
    test_memory();
    test_sizes_change();
    test_batches();
    return done_testing();
}
