/*
 * orders.h - one run of a host in every legal order of the software device,
 * and without each of its waits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_ORDERS_H
#define SUPPORT_ORDERS_H

#include "support/pair.h"

struct outcome {
    bool exact; /* the numbers are right */
    uint64_t races, waits;
    uint64_t evictions; /* of banks */
};

/* How often, and what is run: with these settings of the device. */
struct orders {
    const char *what;
    struct outcome (*run)(const void *options, const char *settings);
    const void *options;
    uint64_t least;  /* waits that it has */
    uint32_t stride; /* one wait of so many is dropped; 0: each */
    bool may_race;   /* a wait that is covered in one order may not be in
                        another, where it races */
};

/* The outcome of steps of so many microbatches. */
struct outcome orders_train(const struct toy_options *options,
                            const char *settings, const uint32_t *counts,
                            uint32_t n);
struct outcome orders_train_pair(const struct pair_options *options,
                                 const char *settings, const uint32_t *counts,
                                 uint32_t n);

/* False, with *status_p: there is no software device, or no driver.  Races are
 * not shown from now on, as half of the runs are for them. */
bool orders_begin(int *status_p);
/* GRAPHHOOKS_TEST_SEEDS, or `usual`. */
uint32_t orders_seeds(uint32_t usual);

/* Points: `n` orders give the right numbers, without a race.  Returns the
 * evictions of all. */
uint64_t orders_are_right(const struct orders *o, uint32_t n);
/* Points: each wait, dropped, is a race.  The host waits for nothing, so that
 * each is the library's. */
void orders_need_waits(const struct orders *o);
/* Points: the same of most; without each of the others the numbers are right in
 * other orders too, as other waits keep the order that it keeps. */
void orders_need_most_waits(const struct orders *o);

#endif
