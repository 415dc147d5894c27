/*
 * thread_barrier.c - see thread_barrier.h.
 *
 * The barriers of the process are a list.  A rank finds its own by the id of
 * the process's first rank, and the last rank that leaves frees it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/thread_barrier.h"

#include "comm/where.h"

#include <pthread.h>
#include <stdlib.h>

struct gh_thread_barrier {
    struct gh_thread_barrier *next;
    uint64_t number; /* of the first rank's id */
    uint32_t n, inside;
    uint64_t arrived[]; /* the last gather of each rank; UINT64_MAX if the rank
                        is in another process, or has left */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gh_thread_barrier *barriers;
static uint64_t last_number;

struct gh_thread_id gh_thread_id(void)
{
    struct gh_thread_id id = { .process = gh_where_process() };

    pthread_mutex_lock(&lock);
    id.number = ++last_number;
    pthread_mutex_unlock(&lock);
    return id;
}

static struct gh_thread_barrier *find(uint64_t number)
{
    struct gh_thread_barrier *barrier = barriers;

    while (barrier != NULL && barrier->number != number) {
        barrier = barrier->next;
    }
    return barrier;
}

/* Adds a barrier in which each rank of the process has arrived at gather 0. */
static struct gh_thread_barrier *add(const uint64_t *ids, uint32_t stride,
                                     uint64_t process, uint64_t number,
                                     uint32_t n)
{
    struct gh_thread_barrier *barrier =
        malloc(sizeof(*barrier) + n * sizeof(barrier->arrived[0]));

    if (barrier == NULL) {
        return NULL;
    }
    *barrier = (struct gh_thread_barrier){ .next = barriers,
                                           .number = number,
                                           .n = n };
    for (uint32_t i = 0; i < n; i++) {
        barrier->arrived[i] =
            ids[(size_t)i * stride] == process ? 0 : UINT64_MAX;
    }
    barriers = barrier;
    return barrier;
}

struct gh_thread_barrier *gh_thread_barrier_join(const uint64_t *ids,
                                                 uint32_t stride, uint32_t rank,
                                                 uint32_t n)
{
    const uint64_t process = ids[(size_t)rank * stride];
    struct gh_thread_barrier *barrier;
    uint32_t first = n, here = 0;

    for (uint32_t i = n; i-- > 0;) {
        if (ids[(size_t)i * stride] == process) {
            first = i;
            here++;
        }
    }
    if (here < 2) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    barrier = find(ids[(size_t)first * stride + 1]);
    if (barrier == NULL) {
        barrier = add(ids, stride, process, ids[(size_t)first * stride + 1], n);
    }
    if (barrier != NULL) {
        barrier->inside++;
    }
    pthread_mutex_unlock(&lock);
    return barrier;
}

void gh_thread_barrier_arrive(struct gh_thread_barrier *barrier, uint32_t rank,
                              uint64_t number)
{
    pthread_mutex_lock(&lock);
    barrier->arrived[rank] = number;
    pthread_mutex_unlock(&lock);
}

bool gh_thread_barrier_all_arrived(struct gh_thread_barrier *barrier,
                                   uint64_t number)
{
    bool full = true;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < barrier->n; i++) {
        full &= barrier->arrived[i] >= number;
    }
    pthread_mutex_unlock(&lock);
    return full;
}

static void take_out(struct gh_thread_barrier *barrier)
{
    struct gh_thread_barrier **at = &barriers;

    while (*at != barrier) {
        at = &(*at)->next;
    }
    *at = barrier->next;
    free(barrier);
}

void gh_thread_barrier_leave(struct gh_thread_barrier *barrier, uint32_t rank)
{
    if (barrier == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    barrier->arrived[rank] = UINT64_MAX;
    if (--barrier->inside == 0) {
        take_out(barrier);
    }
    pthread_mutex_unlock(&lock);
}
