/*
 * Pairs under every legal order of the device: the same weights, no race, and
 * no wait too many.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t counts[] = { 3, 2, 4, 3 };
#define N_STEPS 4

static double uneven(uint32_t cell)
{
    return 100e3 + 50e3 * (cell * 7 % 11);
}

#define MOE GH_LAYER_MOE
#define DENSE GH_LAYER_DENSE

static const struct {
    const char *what;
    struct pair_options options;
} cases[] = {
    { "fixed",
      { .kinds = { MOE, DENSE, MOE },
        .layers = 3,
        .scope = "attn,moe_router",
        .delay_wgrad = true } },
    { "auto",
      { .kinds = { MOE, DENSE, MOE },
        .layers = 3,
        .order = "auto",
        .time_of = uneven,
        .delay_wgrad = true } },
    { "two chunks",
      { .kinds = { MOE, GH_LAYER_MOE_ONLY, GH_LAYER_MAMBA, MOE },
        .layers = 4,
        .chunks = 2,
        .early = true,
        .own_comm = true,
        .scope = "attn" } },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

struct outcome {
    bool exact;
    uint64_t races, waits;
};

static struct outcome run(const struct pair_options *options,
                          const char *settings)
{
    struct outcome outcome = { false, 0, 0 };
    const char *reason;
    struct pair p;
    bool ran;

    if (!pair_open(&p, options, &reason)) {
        return outcome;
    }
    toy_configure(&p.toy, settings);
    ran = pair_attach(&p) == GH_OK;
    for (uint32_t s = 0; s < N_STEPS && ran; s++) {
        ran = pair_step(&p, counts[s]) == GH_OK;
    }
    outcome.exact = ran && pair_hash(&p) == pair_expect(&p, counts, N_STEPS);
    outcome.races = toy_races(&p.toy);
    outcome.waits = toy_counts(&p.toy).waits;
    pair_close(&p);
    return outcome;
}

static void test_seeds(size_t which, uint32_t n)
{
    const char *what = cases[which].what;
    uint32_t wrong = 0, raced = 0;
    char settings[32];

    for (uint32_t seed = 1; seed <= n; seed++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(&cases[which].options, settings);
        if (!outcome.exact) {
            diag("%s: seed %u gives other weights", what, seed);
        }
        wrong += !outcome.exact;
        raced += outcome.races != 0;
    }
    is_int(wrong, 0, "%s: %u legal orders give the same weights, bit for bit",
           what, n);
    is_int(raced, 0, "%s: and none of them has a race", what);
}

/* The host waits for nothing, so every wait is the library's. */
static void test_every_wait_is_needed(size_t which)
{
    const char *what = cases[which].what;
    struct outcome whole = run(&cases[which].options, "SEED=1 RACES=1");
    uint64_t caught = 0;
    char settings[48];

    ok(whole.waits > 10, "%s: %llu waits between the lanes", what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        outcome = run(&cases[which].options, settings);
        if (outcome.races == 0) {
            diag("%s: wait %llu can be dropped without a race", what,
                 (unsigned long long)n);
        }
        caught += outcome.races != 0;
    }
    is_int(caught, whole.waits,
           "%s: each of them, dropped, is reported as a race", what);
}

int main(void)
{
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const uint32_t n = seeds != NULL ? (uint32_t)atoi(seeds) : 200;
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    if (!toy.soft) {
        return skip_all("a real device has one order, and no race detector");
    }
    /* A reported race is what half of these runs are for. */
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("every race is shown, as /dev/null cannot be opened");
    }
    for (size_t i = 0; i < N_CASES; i++) {
        test_seeds(i, n);
        test_every_wait_is_needed(i);
    }
    return done_testing();
}
