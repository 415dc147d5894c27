/*
 * orders.c - see orders.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"

#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>

bool orders_begin(int *status_p)
{
    if (!toy_probe_soft(status_p)) {
        return false;
    }
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("every race is shown, as /dev/null cannot be opened");
    }
    return true;
}

uint32_t orders_seeds(uint32_t usual)
{
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");

    return seeds != NULL ? (uint32_t)atoi(seeds) : usual;
}

struct outcome orders_train(const struct toy_options *options,
                            const char *settings, const uint32_t *counts,
                            uint32_t n)
{
    struct outcome outcome = { .exact = false };
    struct toy toy;

    if (!toy_start(&toy, options, settings)) {
        return outcome;
    }
    if (toy_train(&toy, counts, n) == GH_OK) {
        outcome.exact = toy_is_exact(&toy);
    } else {
        diag("%s: %s", settings, toy.err.text);
    }
    outcome.races = toy_races(&toy);
    outcome.waits = toy_counts(&toy).waits;
    toy_close(&toy);
    return outcome;
}

struct outcome orders_train_pair(const struct pair_options *options,
                                 const char *settings, const uint32_t *counts,
                                 uint32_t n)
{
    struct outcome outcome = { .exact = false };
    struct pair p;

    if (!pair_start(&p, options, settings)) {
        return outcome;
    }
    if (pair_train(&p, counts, n) == GH_OK) {
        outcome.exact = pair_is_exact(&p);
    } else {
        diag("%s: %s", settings, p.toy.err.text);
    }
    outcome.races = toy_races(&p.toy);
    outcome.waits = toy_counts(&p.toy).waits;
    pair_close(&p);
    return outcome;
}

/* wait 0: all are there */
static struct outcome run(const struct orders *o, uint32_t seed, uint64_t wait)
{
    char settings[64];

    if (wait == 0) {
        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
    } else {
        snprintf(settings, sizeof(settings), "SEED=%u RACES=1 DROP_WAIT=%llu",
                 seed, (unsigned long long)wait);
    }
    return o->run(o->options, settings);
}

uint64_t orders_are_right(const struct orders *o, uint32_t n)
{
    uint32_t wrong = 0, raced = 0;
    uint64_t evictions = 0;

    for (uint32_t seed = 1; seed <= n; seed++) {
        const struct outcome outcome = run(o, seed, 0);

        if (!outcome.exact || outcome.races != 0) {
            diag("%s: seed %u: %s numbers, %llu races", o->what, seed,
                 outcome.exact ? "the right" : "other",
                 (unsigned long long)outcome.races);
        }
        wrong += !outcome.exact;
        raced += outcome.races != 0;
        evictions += outcome.evictions;
    }
    is_int(wrong, 0, "%s: %u legal orders give the same numbers, bit for bit",
           o->what, n);
    is_int(raced, 0, "%s: and none of them has a race", o->what);
    return evictions;
}

void orders_need_waits(const struct orders *o)
{
    const struct outcome whole = run(o, 1, 0);
    uint64_t caught = 0;

    ok(whole.waits > o->least, "%s: %llu waits keep the order", o->what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n++) {
        if (run(o, 1, n).races != 0) {
            caught++;
        } else {
            diag("%s: wait %llu can be dropped without a race", o->what,
                 (unsigned long long)n);
        }
    }
    is_int(caught, whole.waits,
           "%s: each of them, dropped, is reported as a race", o->what);
}

static bool is_covered(const struct orders *o, uint64_t n)
{
    bool covered = true, raced = false;

    for (uint32_t seed = 2; seed <= 4; seed++) {
        const struct outcome outcome = run(o, seed, n);

        covered = covered && outcome.exact && outcome.races == 0;
        raced |= outcome.races != 0;
    }
    return covered || (o->may_race && raced);
}

void orders_need_most_waits(const struct orders *o)
{
    const struct outcome whole = run(o, 1, 0);
    uint64_t seen = 0, wrong = 0, tried = 0;

    ok(whole.waits > o->least, "%s: %llu waits keep the order", o->what,
       (unsigned long long)whole.waits);
    for (uint64_t n = 1; n <= whole.waits; n += o->stride) {
        const bool raced = run(o, 1, n).races != 0;

        tried++;
        seen += raced;
        if (!raced && !is_covered(o, n)) {
            diag("%s: wait %llu can be dropped without a report", o->what,
                 (unsigned long long)n);
            wrong++;
        }
    }
    ok(3 * seen > tried,
       "%s: %llu of %llu, dropped one by one, are reported as a race", o->what,
       (unsigned long long)seen, (unsigned long long)tried);
    is_int(wrong, 0,
           "%s: without any of the others the numbers are right in other "
           "orders too",
           o->what);
}
