/*
 * still.h - a device on which nothing happens by itself, for softnccl.
 *
 * One thread plays all ranks: it says which rank it is before each call.
 * Time passes, threads wait and rendezvous end only as a test says, so that
 * what depends on them is tested to the millisecond and without a wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_UNIT_SOFTNCCL_STILL_H
#define TESTS_UNIT_SOFTNCCL_STILL_H

#include "driver/nccl.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    STILL_RANKS = 16
};

extern struct still {
    uint64_t now_ms;
    int rank;                  /* who calls: thread rank + 1 */
    int threads[STILL_RANKS];  /* SOFTCUDA_THREAD_*, of each rank */
    int devices[STILL_RANKS];  /* at first each rank has its own */
    uint64_t capture;          /* streams are captured by that graph */
    bool wild;                 /* no address is memory */
    void (*asleep)(void);      /* while a call sleeps */
    void (*news)(void);        /* when something has happened */
    uint64_t n_held, n_failed; /* rendezvous */
    uint64_t bytes;            /* of the last that was held */
    uint64_t n_live;           /* rendezvous, seats and words */
    uint64_t n_slept;          /* times; a thousand are too many */
} still;

/* Sets everything back, and softnccl uses the device from now on. */
void still_begin(void);
/* Ends the rendezvous that are complete or were given up. */
void still_settle(void);
/* Launches what was captured, once. */
void still_launch(void);
/* What was captured is gone. */
void still_forget_graphs(void);
/* Settles, and drops every call: points that nothing is left. */
void still_end(const char *name);

/* The stream of a rank's device. */
CUstream still_stream(int rank);

/* The ranks of one communicator, made together. */
ncclResult_t still_start(ncclComm_t *comms, int n);
/* The rank is destroyed by its own thread. */
void still_leave(ncclComm_t comm, int rank);

/* The i-th report, or "". */
const char *still_report(uint64_t i);
uint64_t still_reports(void);

#endif
