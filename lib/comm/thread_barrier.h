/*
 * thread_barrier.h - the threads of one process wait for each other.
 *
 * A kernel of NCCL runs until all ranks have come.  While it runs, a call that
 * frees memory does not return: the driver lets it wait for the kernels of
 * every device that reaches its own, and the devices of one process do.  So if
 * one thread launched a gather while another still freed memory, each would
 * wait for the other.  The threads therefore wait on the host first, and launch
 * when all of them have arrived.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_THREAD_BARRIER_H
#define GH_COMM_THREAD_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

struct gh_thread_barrier;

/* What a rank tells the others, so that they find its barrier. */
struct gh_thread_id {
    uint64_t process; /* equal on the threads of one process */
    uint64_t number;  /* its own within the process */
};
#define GH_THREAD_ID_WORDS 2u

struct gh_thread_id gh_thread_id(void);

/* The barrier of this rank, which the other ranks of its process have as well.
 * `ids` are those of all ranks, each `stride` words after the one before.
 * NULL: no other rank is in this process, or there is no memory for a barrier.
 */
struct gh_thread_barrier *gh_thread_barrier_join(const uint64_t *ids,
                                                 uint32_t stride, uint32_t rank,
                                                 uint32_t n);
/* Notes that this rank has arrived at gather `number`. */
void gh_thread_barrier_arrive(struct gh_thread_barrier *barrier, uint32_t rank,
                              uint64_t number);
/* Whether all ranks of the process have, or have left.  Never waits. */
bool gh_thread_barrier_all_arrived(struct gh_thread_barrier *barrier,
                                   uint64_t number);
/* NULL is allowed.  Nobody waits for this rank any more. */
void gh_thread_barrier_leave(struct gh_thread_barrier *barrier, uint32_t rank);

#endif
