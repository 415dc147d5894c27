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

/* And a flight is on two streams, of which either may end last. */
static const struct toy_options weights_beside = { .layers = 2,
                                                   .elems = 8,
                                                   .in_flight = 2,
                                                   .streams = 2,
                                                   .free_running = true,
                                                   .wgrad = TOY_WGRAD_BESIDE };

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

static void test_seeds(const struct toy_options *options, const char *what,
                       uint32_t n)
{
    uint32_t wrong = 0, raced = 0;
    char settings[32];

    for (uint32_t seed = 1; seed <= n; seed++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(options, settings);
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

/* Where the toy waits for nothing, every wait is the library's. */
static void test_every_wait_is_needed(const struct toy_options *options,
                                      const char *what)
{
    struct outcome whole = run(options, "SEED=1 RACES=1");
    uint64_t caught = 0;
    char settings[48];

    ok(whole.waits > 10, "%s: %llu waits order the slots", what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        outcome = run(options, settings);
        if (outcome.races == 0) {
            diag("%s: wait %llu can be dropped without a race", what,
                 (unsigned long long)n);
        }
        caught += outcome.races != 0;
    }
    is_int(caught, whole.waits,
           "%s: each of them, dropped, is reported as a "
           "race",
           what);
}

int main(void)
{
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const char *reason;
    struct toy toy;
    uint32_t n;

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
    n = seeds != NULL ? (uint32_t)atoi(seeds) : 2000;
    test_seeds(&three_streams, "three streams", n);
    test_seeds(&weights_beside, "weights beside", n / 2);
    test_every_wait_is_needed(&three_streams, "three streams");
    test_every_wait_is_needed(&weights_beside, "weights beside");
    return done_testing();
}
