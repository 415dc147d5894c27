/*
 * contract.h - what the programs of the driver's contract share.
 *
 * One suite, two drivers: the software device, or a real one when
 * GRAPHHOOKS_TEST_DRIVER=cuda.  A point says what this project relies on;
 * where the two differ, the software device is wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_DRIVER_CONTRACT_H
#define TESTS_DRIVER_CONTRACT_H

#include "driver/driver.h"
#include "tap/tap.h"

extern struct driver drv;
extern CUcontext ctx;        /* current on the thread that opened */
extern CUstream blocking;    /* one of each kind */
extern CUstream side, other; /* non-blocking */
extern CUdeviceptr words;    /* WORDS words, zero at first */
extern uint32_t *pinned;     /* WORDS words */

enum {
    WORDS = 1024,
    WORD = 4
};

/* Loads the driver and makes the above.  When it cannot, false, and what
 * main() then returns: there is nothing more to say. */
bool contract_open(int *status_p);
void contract_close(void);
/* Nobody else uses the software device; a real one has other programs. */
bool contract_is_soft(void);

/* Kernels, by name: "nop", "store" (u64 to, u32 value), "add" (u64 to,
 * u64 from): *to += *from. */
CUfunction contract_kernel(const char *name);
const void *contract_image(void);

/* One thread each. */
CUresult launch_store(CUstream stream, CUdeviceptr to, uint32_t value);
CUresult launch_add(CUstream stream, CUdeviceptr to, CUdeviceptr from);
/* Memory's word, after waiting for everything. */
uint32_t word_at(CUdeviceptr address);
CUdeviceptr word(uint32_t i);

CUstream new_stream(unsigned int flags);
CUevent new_event(unsigned int flags);

/* The stream's capture status, or minus the error of asking. */
int capture_status(CUstream stream);
CUresult begin(CUstream stream);
/* Ends a capture that must give this code; frees the graph. */
void end_is(CUstream stream, CUresult code, const char *after);
CUgraph end_graph(CUstream stream);
CUgraphExec instantiate(CUgraph graph);

/* Runs fn on a thread of its own that has the context, and waits. */
void on_thread(void (*fn)(void *), void *arg);

#endif
