/*
 * host_barrier.h - where ranks that are threads wait for each other on the
 * host.
 *
 * Threads that share a device share its context.  Freeing memory there may
 * wait for all kernels, even for one of NCCL's that waits for the rank that
 * frees.  So nobody begins with collectives before all have allocated their
 * memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_HOST_BARRIER_H
#define ENGINE_HOST_BARRIER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct host_barrier {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int n, here;
    unsigned rounds;
    bool broken;
};

void host_barrier_init(struct host_barrier *barrier, int n);
void host_barrier_destroy(struct host_barrier *barrier);

/* Waits until all have come.  Returns 0, or -1 if one of them never will. */
int host_barrier_wait(struct host_barrier *barrier);
/* Tells that the caller will not come any more.  The two functions are a
 * comm_watch of a struct host_barrier. */
void host_barrier_break(void *barrier, const char *why);
bool host_barrier_lost(void *barrier, char *text, size_t text_bytes);

#endif
