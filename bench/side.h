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

/* Who moves the bytes: the library's copies, NCCL, or a copy that nobody
 * waits for. */
enum exchange_by { BY_COPY, BY_NCCL, BY_BARE, EXCHANGES };

struct side {
    struct rank *rank;
    struct bench bench;
    struct products products;
    uint64_t unit; /* a MiB, or less on the software device */
    uint64_t most; /* bytes that are sent at once */
    void *send;    /* so many */
    CUstream side; /* of the highest priority */
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
/* `bytes` from `send` to the others, who find them from `at` on. */
void side_send(struct side *s, gh_exchange *x, const void *send, uint64_t at,
               uint64_t bytes, CUstream stream);
/* For all of the bench's stream, then for the other ranks.  `x` is what was
 * issued there; NULL: no exchange. */
void side_wait(struct side *s, gh_exchange *x);

#endif
