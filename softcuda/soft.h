/*
 * soft.h - the state that every file of the software device may use.
 *
 * One process-wide device, guarded by one mutex that every entry point holds
 * from soft_enter() to soft_leave(), control.c.  Nothing outside softcuda/
 * includes this or any other header here but softcuda.h.
 *
 * The life of a piece of work: an entry point fills the `work` of a fresh op
 * and hands it to stream_issue().  That makes it a node of a graph when the
 * stream is capturing; otherwise the op gets its dependencies and its place
 * in the happens-before order, and the engine runs it once they are met.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SOFT_H
#define SOFTCUDA_SOFT_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

#define SOFT_API __attribute__((visibility("default")))
#define SOFT_MAX_DEVICES 16

struct settings {
    uint64_t seed, drop_wait, devices, memory;
    bool races, unwritten, trace, pageable, processes;
};

struct vc;

/* A host: the program, or with PROCESSES the threads of one device. */
struct host {
    struct vc *vc;    /* what every later call of its comes after */
    uint64_t version; /* of vc; no two hosts have the same but 0 */
    uint64_t ns;
};

struct soft {
    bool inited;
    struct settings set;
    struct host hosts[SOFT_MAX_DEVICES];
    struct host *host; /* of the thread that is inside */
    uint64_t host_versions;
    uint64_t last_ns, clock_base;

    uint64_t held; /* ops that wait for a word of memory */
    uint64_t pending, waits, launches, prioritized;
};

extern struct soft soft;

struct thread_state {
    uint64_t id;
    CUcontext ctx;
    CUstreamCaptureMode mode;
    bool in_callback;
    bool enlisted; /* wait.c has heard of it */
};

/* The calling thread's. */
struct thread_state *thread_self(void);

#endif
