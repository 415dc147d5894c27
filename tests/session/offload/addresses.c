/*
 * Passes that are recorded while their groups lie where an eager pass has left
 * them, which is not where a graph would have them.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

/* ---- memory for what stays ---------------------------------------------- */

/* No forward can be recorded, and the backward is with memory for the largest
 * group there is, while this one waits in memory for a small one. */
static void backward_alone(const struct toy_options *options, const char *what)
{
    uint64_t replays;

    if (!open_with(options)) {
        return;
    }
    steps(1, 1);
    sv.words[0] = options->elems / 2;
    toy_configure(&sv, "RACES=1 FAIL=cuStreamBeginCapture:1");
    ok(steps(1, 1) && is_right(),
       "%s: a backward is recorded after an eager forward", what);
    replays = toy_stats(&sv).replays;
    ok(steps(2, 1) && is_right(), "%s: and training goes on", what);
    is_int(toy_stats(&sv).replays - replays, 2, "%s: with a graph", what);
    toy_close(&sv);
}

static void test_recorded_backward_alone(void)
{
    struct toy_options o = { .layers = 1,
                             .modules = 2,
                             .tensors = 3,
                             .elems = 256,
                             .environment = silent,
                             .own = true };

    o.offload = (gh_offload_desc){ .struct_size = 1,
                                   .modules = TOY_MODULES,
                                   .min_bytes = 512 };
    backward_alone(&o, "small tensors stay");
    o.unlent = true;
    o.offload.fraction = "0";
    backward_alone(&o, "all stay, no service");
}

/* The first step offloads nothing, so that recordings begin before the largest
 * group is known: it is met between the recordings of a small one's forward and
 * of its backward. */
static void test_recorded_before_the_largest(void)
{
    static const uint32_t words[] = { 64, 256, 64, 256 };
    struct toy_options o = { .layers = 1,
                             .modules = 2,
                             .tensors = 2,
                             .elems = 256,
                             .in_flight = 2,
                             .environment = silent,
                             .own = true,
                             .unlent = true };

    if (!open_with(&o)) {
        return;
    }
    sv.trained_modules = o.modules + 1; /* none */
    sv.loads_nothing = true;
    steps(1, 4);
    sv.trained_modules = 0;
    sv.loads_nothing = false;
    memcpy(sv.words, words, sizeof(words));
    ok(steps(2, 4) && is_right(),
       "a backward is recorded with the memory that its forward's graph has");
    ok(toy_stats(&sv).replays > 0, "and both are replayed");
    toy_close(&sv);
}

/* ---- a group that a recorded pass ends ---------------------------------- */

/* The second part of a layer commits what its first has saved eagerly.  The
 * first step has one microbatch, and there is pinned memory for its groups,
 * those of five layers: another's stay. */
static const struct toy_options across = { .layers = 6,
                                           .modules = 1,
                                           .tensors = 1,
                                           .elems = 128,
                                           .in_flight = 2,
                                           .granularity = "part",
                                           .scope = "mlp",
                                           .across = true,
                                           .offload = { .struct_size = 1,
                                                        .modules = TOY_MODULES,
                                                        .min_bytes = 512,
                                                        .pool_bytes =
                                                            5 * 512 } };

static uint32_t n_recorded;

static enum toy_answer count_commits(struct toy *host, enum toy_call call,
                                     uint32_t layer, uint32_t module,
                                     uint32_t microbatch)
{
    (void)module;
    n_recorded += call == TOY_COMMIT && layer == 0 && microbatch == 1 &&
                  host->decision.action == GH_ACTION_RECORD;
    return TOY_GO_ON;
}

static void test_saved_elsewhere(void)
{
    struct toy_options o = across;
    uint64_t replays;

    o.environment = silent;
    if (!open_with(&o)) {
        return;
    }
    steps(1, 1);
    n_recorded = 0;
    sv.watch = count_commits;
    ok(steps(1, 2) && is_right() && n_recorded == 1,
       "a part is recorded that commits a group without pinned memory");
    sv.watch = NULL;
    replays = toy_stats(&sv).replays;
    ok(steps(1, 2) && is_right(), "it is right where there is none again");
    is_int(toy_stats(&sv).replays - replays, 2 * 2 * 6 - 5,
           "and all are replayed but backwards that would wait for a copy");
    sv.words[0] = 64; /* does not go */
    ok(steps(1, 2) && is_right(),
       "where the group goes, no graph looks for it where it was");
    toy_close(&sv);
}

/* Each step the group is loaded eagerly by the layer's second part, from
 * wherever the host has had it, and released by the backward of the first, which
 * has a graph. */
static void loaded_elsewhere(bool unlent, uint32_t more, const char *what)
{
    static const uint32_t words[] = { 64, 256, 64, 64 };
    struct toy_options o = { .layers = 2,
                             .modules = 2,
                             .tensors = 2,
                             .elems = 256,
                             .in_flight = 2,
                             .granularity = "part",
                             .scope = "attn",
                             .environment = silent,
                             .own = true,
                             .loads_across = true };

    o.unlent = unlent;
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_b",
                                   .min_bytes = 4 };
    if (!open_with(&o)) {
        return;
    }
    memcpy(sv.words, words, sizeof(words));
    steps(1, 2);
    /* The forwards of both layers, and of both microbatches, stay eager. */
    toy_configure(&sv, "RACES=1 FAIL=cuStreamBeginCapture:1,"
                       "cuStreamBeginCapture:2,cuStreamBeginCapture:3,"
                       "cuStreamBeginCapture:4");
    ok(steps(1, 2) && is_right(), "%s: a part is recorded that releases it",
       what);
    toy_configure(&sv, "RACES=1");
    for (uint32_t i = 0; i < 4; i++) {
        sv.words[0] = i % 2 == 0 ? more : 64;
        for (uint32_t taken = 0; taken < 8; taken++) {
            lender_find(&sv.lender, 512, sv.streams[0]);
        }
        steps(1, 1 + i);
    }
    ok(is_right(), "%s: no graph looks for it where it was", what);
    toy_close(&sv);
}

static void test_loaded_elsewhere(void)
{
    loaded_elsewhere(false, 64, "what stays at the host's");
    loaded_elsewhere(true, 256, "what stays at the library's");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_recorded_backward_alone();
    test_recorded_before_the_largest();
    test_saved_elsewhere();
    test_loaded_elsewhere();
    return done_testing();
}
