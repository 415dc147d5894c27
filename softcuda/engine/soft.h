/*
 * soft.h - the state that every file of the software device may use.
 *
 * There is one device per process.  One mutex guards it, which every entry
 * point holds from soft_enter() to soft_leave() (control.c).  Nothing outside
 * softcuda/ includes this header or any other one here except softcuda.h and
 * rendezvous.h.
 *
 * The life of a piece of work: an entry point fills the `work` of a new op and
 * hands it to stream_issue().  If the stream is capturing, this makes it a
 * node of a graph.  Otherwise the op gets its dependencies and its position in
 * the happens-before order, and the engine runs it once they are met.
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
    bool races, unwritten, trace, pageable, processes, mapping;
};

struct vc;

/* A host: the whole program, or with PROCESSES the threads of one device. */
struct host {
    struct vc *vc;    /* what its later calls come after */
    uint64_t version; /* of vc; different for every host, except 0 */
    uint64_t ns;
};

struct soft {
    bool inited;
    struct settings set;
    struct host hosts[SOFT_MAX_DEVICES];
    struct host *host; /* of the thread that holds the lock */
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
    bool enlisted; /* wait.c knows the thread */
};

/* The state of the calling thread. */
struct thread_state *thread_self(void);

#endif
