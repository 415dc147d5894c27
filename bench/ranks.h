/*
 * ranks.h - a bench of several ranks: processes on a GPU, and on the software
 * device threads that stand for processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_RANKS_H
#define BENCH_RANKS_H

#include "bench/bench.h"

enum {
    RANKS_MOST = 8,
    RANKS_WORDS = 4096 /* that a gather brings of each */
};

struct ranks_board;

struct rank {
    struct ranks_board *board; /* memory that all of them share */
    uint32_t rank, n;
};

/* Runs each; before anything of a driver is loaded.  Returns in rank 0 alone,
 * when all have ended well.  One that fails ends the program. */
void ranks_run(uint32_t n, bool threads,
               void (*body)(struct rank *rank, void *user), void *user);

/* How many --ranks asks for; else `usual`.  On the software device, as many
 * devices are there from then on; call it before anything is loaded. */
uint32_t ranks_asked(const struct bench_options *options, uint32_t usual);

/* All of a bench between ranks, two unless --ranks says otherwise: options,
 * which the body is given as `user`, and the ranks.  0. */
int ranks_bench(int argc, char **argv, const char *what, int most_rounds,
                void (*body)(struct rank *rank, void *user));

/* Waits for all of them, but not for ever. */
void rank_meet(struct rank *rank);
/* gh_exchange_desc.gather; `rank` is a struct rank. */
gh_status rank_gather(void *rank, uint32_t bank, const uint64_t *mine,
                      uint64_t *all, uint32_t n);
/* Each becomes the largest that a rank has. */
void rank_most(struct rank *rank, double *values, uint32_t n);

#endif
