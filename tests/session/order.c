/*
 * Every legal order gives the same weights, and every wait is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t counts[] = { 4, 6, 5, 3, 4 };
#define N_STEPS 5

/* Three streams and two slots: a slot goes from stream to stream. */
static const struct toy_options three_streams = {
    .layers = 2, .elems = 8, .in_flight = 2, .streams = 3, .free_running = true
};

struct outcome {
    bool exact;
    uint64_t races;
    uint64_t waits;
};

static struct outcome run(const struct toy_options *options,
                          const char *settings)
{
    struct outcome outcome = { false, 0, 0 };
    const char *reason;
    struct toy toy;
    bool ran;

    if (!toy_open(&toy, options, &reason)) {
        return outcome;
    }
    toy_configure(&toy, settings);
    ran = toy_attach(&toy) == GH_OK;
    for (uint32_t s = 0; s < N_STEPS && ran; s++) {
        ran = toy_step(&toy, counts[s]) == GH_OK;
    }
    outcome.exact =
        ran && toy_hash(&toy) == toy_expect(options, counts, N_STEPS);
    outcome.races = toy_races(&toy);
    outcome.waits = toy_counts(&toy).waits;
    toy_close(&toy);
    return outcome;
}

static void test_seeds(uint32_t n)
{
    uint32_t wrong = 0, raced = 0;
    char settings[32];

    for (uint32_t seed = 1; seed <= n; seed++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(&three_streams, settings);
        if (!outcome.exact) {
            diag("seed %u gives other weights", seed);
        }
        wrong += !outcome.exact;
        raced += outcome.races != 0;
    }
    is_int(wrong, 0, "%u legal orders give the same weights, bit for bit", n);
    is_int(raced, 0, "and none of them has a race");
}

/* The toy itself waits for nothing, so every wait is the library's. */
static void test_every_wait_is_needed(void)
{
    struct outcome whole = run(&three_streams, "SEED=1 RACES=1");
    uint64_t caught = 0;
    char settings[48];

    ok(whole.waits > 10, "%llu waits order the slots",
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        outcome = run(&three_streams, settings);
        if (outcome.races == 0) {
            diag("wait %llu can be dropped without a race",
                 (unsigned long long)n);
        }
        caught += outcome.races != 0;
    }
    is_int(caught, whole.waits, "each of them, dropped, is reported as a race");
}

int main(void)
{
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const char *reason;
    struct toy toy;

    if (!toy_open(&toy, &three_streams, &reason)) {
        return skip_all("%s", reason);
    }
    if (!toy.soft) {
        toy_close(&toy);
        return skip_all("a real device has one order, and no race detector");
    }
    toy_close(&toy);
    /* A reported race is what half of these runs are for. */
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("every race is shown, as /dev/null cannot be opened");
    }
    test_seeds(seeds != NULL ? (uint32_t)atoi(seeds) : 2000);
    test_every_wait_is_needed();
    return done_testing();
}
