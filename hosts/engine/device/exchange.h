/*
 * exchange.h - exchanges tokens between ranks that divide experts.
 *
 * It has one function: every rank sends a run of floats of any length to every
 * rank, and receives one from each.  Runs follow each other in the order of
 * the ranks.  A failure sticks to the device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_EXCHANGE_H
#define ENGINE_EXCHANGE_H

#include "device/comm.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    EXCHANGE_RANKS = 64 /* the most that divide experts */
};

struct exchange {
    const struct comm *comm; /* of these ranks; NULL: there is no exchange */
    const struct comm_watch *watch;
    uint64_t calls, bytes; /* issued, and sent to other ranks by them */
    uint64_t captured;     /* calls that went into a graph, which repeats
                              them */
    /* Another way to exchange, with the arguments of the function below; NULL:
     * by sends and receives. */
    int (*carry)(void *user, const float *send, float *recv,
                 const size_t *counts, CUstream stream);
    int (*wait)(void *user, CUstream stream);
    void *user;
};

bool exchange_is_captured(struct device *dev, CUstream stream);

/* Sends counts[i * n + j] floats from rank i to rank j.  All ranks give the
 * same counts, and make the calls in the same order.  It is in the stream's
 * order, and never blocks. */
void exchange_all_to_all(struct exchange *exchange, const float *send,
                         float *recv, const size_t *counts, CUstream stream);

/* Waits for a stream with exchanges, but not for ranks that have failed or do
 * not come.  Returns 0, or -1: dev->error. */
int exchange_synchronize(const struct exchange *exchange, CUstream stream);

#endif
