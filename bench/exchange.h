/*
 * exchange.h - what the files of bench/exchange share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include "bench/side.h"

enum { MOST_ROUNDS = 64 };

/* Exchanges of a host with experts, by each kind and in each order. */
void exchange_overlap(struct side *s, FILE *file, int rounds);

#endif
