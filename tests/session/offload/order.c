/*
 * Every legal order of what is offloaded gives the same sums, and every wait
 * that the library adds for it is needed, or is known to be covered by another.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t counts[] = { 3, 4, 2, 3 };
#define N_STEPS 4

struct outcome {
    bool exact;
    uint64_t races, waits;
};

static struct outcome run(const struct saver_options *options,
                          const char *settings)
{
    struct outcome outcome = { false, 0, 0 };
    const char *reason;
    struct saver sv;
    bool ran;

    if (!saver_open(&sv, options, &reason)) {
        diag("%s", reason);
        return outcome;
    }
    toy_configure(&sv.toy, settings);
    ran = saver_attach(&sv) == GH_OK;
    for (uint32_t s = 0; s < N_STEPS && ran; s++) {
        ran = saver_step(&sv, counts[s]) == GH_OK;
    }
    if (!ran) {
        diag("%s: %s", settings, sv.err.text);
    }
    outcome.exact = ran && saver_is_exact(&sv);
    outcome.races = toy_races(&sv.toy);
    outcome.waits = toy_counts(&sv.toy).waits;
    saver_close(&sv);
    return outcome;
}

static void test_seeds(const struct saver_options *options, const char *what,
                       uint32_t n)
{
    uint32_t wrong = 0, raced = 0;
    char settings[32];

    for (uint32_t seed = 1; seed <= n; seed++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(options, settings);
        if (!outcome.exact || outcome.races != 0) {
            diag("%s: seed %u: %s sums, %llu races", what, seed,
                 outcome.exact ? "the right" : "other",
                 (unsigned long long)outcome.races);
        }
        wrong += !outcome.exact;
        raced += outcome.races != 0;
    }
    is_int(wrong, 0, "%s: %u legal orders give the same sums, bit for bit",
           what, n);
    is_int(raced, 0, "%s: and none of them has a race", what);
}

/* Whether other waits keep the order that wait `n` does.  A host that is told
 * when its memory is free waits for what it is told of, so that another order
 * may show what one does not. */
static bool is_covered(const struct saver_options *options, uint64_t n)
{
    bool covered = true, raced = false;

    for (uint32_t seed = 2; seed <= 4; seed++) {
        struct outcome outcome;
        char settings[64];

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1 DROP_WAIT=%llu",
                 seed, (unsigned long long)n);
        outcome = run(options, settings);
        covered = covered && outcome.exact && outcome.races == 0;
        raced |= outcome.races != 0;
    }
    return covered || (options->own && raced);
}

/* The same few waits are made in every step, so one of so many is tried. */
#define STRIDE 7

/* The host adds no wait, so each is the library's.  A copy waits for its own
 * buffers' events, also where the buffers that come before it in the ring have
 * made it wait long enough. */
static void test_waits(const struct saver_options *options, const char *what)
{
    const struct outcome whole = run(options, "SEED=1 RACES=1");
    uint64_t seen = 0, wrong = 0, tried = 0;
    char settings[48];

    ok(whole.waits > 50, "%s: %llu waits keep the order", what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n += STRIDE) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        outcome = run(options, settings);
        tried++;
        seen += outcome.races != 0;
        wrong += outcome.races == 0 && !is_covered(options, n);
    }
    ok(3 * seen > tried,
       "%s: %llu of %llu, dropped one by one, are reported as a race", what,
       (unsigned long long)seen, (unsigned long long)tried);
    is_int(wrong, 0,
           "%s: without any of the others the sums are right in other orders "
           "too",
           what);
}

int main(void)
{
    static const char *const delayed[] = { "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };
    const struct saver_options layers = { .layers = 4,
                                          .modules = 2,
                                          .tensors = 1,
                                          .elems = 16,
                                          .in_flight = 2,
                                          .slots = 2,
                                          .streams = 2,
                                          .free_running = true };
    struct saver_options chunk = layers, parts = layers, later = layers;
    struct saver_options own = layers, stay = layers, staged = layers, one;
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const char *reason;
    struct toy probe;
    uint32_t n;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    if (!probe.soft) {
        return skip_all("a real device has one order, and no race detector");
    }
    /* A reported race is what half of these runs are for. */
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("every race is shown, as /dev/null cannot be opened");
    }
    n = seeds != NULL ? (uint32_t)atoi(seeds) : 25;
    chunk.granularity = "chunk";
    parts.granularity = "part";
    parts.across = true;
    parts.last_first = true;
    later.environment = delayed;
    test_seeds(&layers, "layers", n);
    test_seeds(&chunk, "a chunk", n);
    test_seeds(&parts, "a group across two parts", n);
    test_seeds(&later, "delayed", n);
    one = later;
    one.slots = 1;
    one.streams = 3;
    test_seeds(&one, "delayed, three streams and one slot", n);
    own.own = true;
    stay.own = true;
    stay.tensors = 2;
    stay.granularity = "chunk";
    stay.last_first = true;
    stay.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                      .min_bytes = 40 };
    staged = stay;
    staged.unlent = true;
    staged.granularity = "layer";
    test_seeds(&own, "the host's own memory", n);
    test_seeds(&stay, "the host's own memory, most of it stays", n);
    test_seeds(&staged, "the host's own memory, and no service", n);
    own.environment = delayed;
    test_seeds(&own, "the host's own memory, delayed", n);
    own.environment = NULL;
    test_waits(&layers, "layers");
    test_waits(&own, "the host's own memory");
    test_waits(&staged, "the host's own memory, and no service");
    test_waits(&parts, "a group across two parts");
    test_waits(&later, "delayed");
    return done_testing();
}
