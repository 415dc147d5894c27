/*
 * side.h - one rank of a bench that exchanges: its device, its NCCL, and
 * exchanges of both kinds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SIDE_H
#define BENCH_SIDE_H

#include "bench/product.h"
#include "bench/ranks.h"

#include "driver/nccl.h"

/* Who moves the bytes: the library's copies, NCCL, a copy that nobody waits
 * for; in turn, the library's copies, its kernel, or what auto takes alone. */
enum exchange_by {
    BY_COPY,
    BY_NCCL,
    BY_BARE,
    EXCHANGES,
    BY_TURNS = EXCHANGES,
    BY_KERNEL,
    BY_AUTO
};

/* With a turn: nothing runs beside the call. */
#define SIDE_ALONE 4u

struct side {
    struct rank *rank;
    struct bench bench;
    struct products products;
    uint64_t unit; /* a MiB, or less on the software device */
    uint64_t most; /* bytes that are sent at once */
    void *send;    /* so many */
    uint32_t devices; /* that the ranks have, all together */
    CUstream side; /* of the highest priority */
    uint32_t sent; /* calls that have asked for a turn since the last wait */
    CUevent begins, ends, join;
    struct nccl nccl;
    char nccl_path[4096];
    ncclComm_t comm; /* NULL: there is no NCCL */
};

void side_open(struct side *s, struct rank *rank,
               const struct bench_options *options);
void side_close(struct side *s);
bool side_has(const struct side *s, enum exchange_by by);
const char *by_name(enum exchange_by by);

/* An exchange that writes into `window`; all ranks make it. */
gh_exchange *side_exchange(struct side *s, enum exchange_by by, void *window,
                           uint64_t bytes);
/* `bytes` from `send` to the others, who find them from `at` on; in turn 1 or
 * 2, or 0 for a call that is not in turn. */
void side_send(struct side *s, gh_exchange *x, const void *send, uint64_t at,
               uint64_t bytes, uint32_t turn, CUstream stream);
/* The same, table[i * n + j] bytes from rank i to rank j. */
void side_trade(struct side *s, gh_exchange *x, const void *send, uint64_t at,
                const uint64_t *table, uint32_t turn, CUstream stream);
/* The next turn of calls that write another part of the window each.  After a
 * side_wait() it is 0: another exchange may have written there. */
uint32_t side_turn(struct side *s);
/* What a rank gives to each of the others where it sends `bytes` in all. */
uint64_t side_part(const struct side *s, uint64_t bytes);
/* Where its results go: a file of rank 0's, and nowhere from the others. */
FILE *side_json_begin(const struct side *s, const char *name);
void side_json_end(const struct side *s, FILE *file);
/* For all of the bench's stream, then for the other ranks.  `x` is what was
 * issued there; NULL: no exchange. */
void side_wait(struct side *s, gh_exchange *x);

#endif
