/*
 * exchange.h - the exchange of tokens between ranks that divide experts.
 *
 * One function: every rank sends a run of floats to every rank, of any length,
 * and has a run of each.  Runs lie one behind the other in the order of the
 * ranks.  A failure sticks to the device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_EXCHANGE_H
#define ENGINE_EXCHANGE_H

#include "device/comm.h"

#include <stdint.h>

enum {
    EXCHANGE_RANKS = 64 /* most that divide experts */
};

struct exchange {
    const struct comm *comm; /* of the ranks; NULL: there is no exchange */
    const struct comm_watch *watch;
    uint64_t calls, bytes; /* issued, and sent by them to other ranks */
    uint64_t captured;     /* of the calls: into a graph, which repeats them */
    /* Somebody else's way, as the two below; NULL: by sends and receives. */
    int (*carry)(void *user, const float *send, float *recv,
                 const size_t *counts, CUstream stream);
    int (*wait)(void *user, CUstream stream);
    void *user;
};

/* counts[i * n + j] floats go from rank i to rank j; all ranks give the same,
 * in the same order of calls.  In the stream's order; blocks never. */
void exchange_all_to_all(struct exchange *exchange, const float *send,
                         float *recv, const size_t *counts, CUstream stream);

/* Waits for a stream that exchanges are on, but not for ranks that have failed
 * or do not come.  0, or -1: dev->error. */
int exchange_synchronize(const struct exchange *exchange, CUstream stream);

#endif
