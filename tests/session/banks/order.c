/*
 * Banks that take turns in a slot's memory give the same numbers in every
 * legal order, and every wait is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/shapes.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>

#define N_STEPS 6

/* Three shapes and two slots, that go from stream to stream. */
static const uint32_t orders[N_STEPS][5] = {
    { 0, 1, 2, 1, 0 }, { 0, 1, 2, 1, 0 }, { 2, 2, 1, 0, 1 },
    { 1, 0, 0, 2, 2 }, { 0, 2, 1, 1, 2 }, { 2, 1, 0, 0, 1 },
};

struct outcome {
    bool exact;
    uint64_t races, waits, evictions;
};

static struct outcome run(const struct shapes_options *options,
                          const char *settings)
{
    struct outcome outcome = { false, 0, 0, 0 };
    const char *reason;
    struct shapes s;
    bool ran = true;

    if (!shapes_open(&s, options, &reason)) {
        return outcome;
    }
    toy_configure(&s.toy, settings);
    shapes_add_tokens(&s, 96);
    shapes_add_tokens(&s, 64);
    shapes_add_tokens(&s, 24);
    for (uint32_t step = 0; step < N_STEPS && ran; step++) {
        s.less = step * 5;
        ran = shapes_step(&s, orders[step], 5) == GH_OK;
    }
    outcome.exact = ran && shapes_are_exact(&s);
    outcome.races = toy_races(&s.toy);
    outcome.waits = toy_counts(&s.toy).waits;
    for (uint32_t i = 0; i < 3; i++) {
        outcome.evictions += shapes_stats(&s, i).evictions;
    }
    shapes_close(&s);
    return outcome;
}

static void test_seeds(const struct shapes_options *options, const char *what,
                       uint32_t n)
{
    uint32_t wrong = 0, raced = 0;
    uint64_t evictions = 0;
    char settings[32];

    for (uint32_t seed = 1; seed <= n; seed++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(options, settings);
        wrong += !outcome.exact;
        raced += outcome.races != 0;
        evictions += outcome.evictions;
    }
    is_int(wrong, 0, "%s: %u legal orders give the same sums", what, n);
    is_int(raced, 0, "%s: and none of them has a race", what);
    if (options->environment[1] != NULL) {
        ok(evictions >= n, "%s: while banks give way", what);
    }
}

static void test_every_wait_is_needed(const struct shapes_options *options,
                                      const char *what)
{
    const struct outcome whole = run(options, "SEED=1 RACES=1");
    uint64_t caught = 0;
    char settings[48];

    ok(whole.waits > 10, "%s: %llu waits order the slots", what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n++) {
        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        if (run(options, settings).races != 0) {
            caught++;
        } else {
            diag("%s: wait %llu can be dropped without a race", what,
                 (unsigned long long)n);
        }
    }
    is_int(caught, whole.waits,
           "%s: each of them, dropped, is reported as a race", what);
}

int main(void)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const two[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_MAX_BANKS=2", NULL };
    struct shapes_options options = { .elems = 96,
                                      .slots = 2,
                                      .in_flight = 2,
                                      .streams = 3,
                                      .by_capacity = true,
                                      .free_running = true,
                                      .environment = quiet };
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const uint32_t n = seeds != NULL ? (uint32_t)atoi(seeds) : 500;
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
    test_seeds(&options, "three banks", n);
    test_every_wait_is_needed(&options, "three banks");
    options.environment = two;
    test_seeds(&options, "two of three", n);
    test_every_wait_is_needed(&options, "two of three");
    return done_testing();
}
