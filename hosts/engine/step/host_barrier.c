/*
 * host_barrier.c - see host_barrier.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/host_barrier.h"

#include <stdio.h>

void host_barrier_init(struct host_barrier *barrier, int n)
{
    *barrier = (struct host_barrier){ .n = n };
    pthread_mutex_init(&barrier->lock, NULL);
    pthread_cond_init(&barrier->news, NULL);
}

void host_barrier_destroy(struct host_barrier *barrier)
{
    pthread_cond_destroy(&barrier->news);
    pthread_mutex_destroy(&barrier->lock);
}

int host_barrier_wait(struct host_barrier *barrier)
{
    unsigned round;
    bool met;

    pthread_mutex_lock(&barrier->lock);
    round = barrier->rounds;
    if (++barrier->here == barrier->n) {
        barrier->here = 0;
        barrier->rounds++;
        pthread_cond_broadcast(&barrier->news);
    }
    while (barrier->rounds == round && !barrier->broken) {
        pthread_cond_wait(&barrier->news, &barrier->lock);
    }
    met = barrier->rounds != round;
    pthread_mutex_unlock(&barrier->lock);
    return met ? 0 : -1;
}

void host_barrier_break(void *at, const char *why)
{
    struct host_barrier *barrier = at;

    (void)why; /* the rank itself reports it */
    pthread_mutex_lock(&barrier->lock);
    barrier->broken = true;
    pthread_cond_broadcast(&barrier->news);
    pthread_mutex_unlock(&barrier->lock);
}

bool host_barrier_lost(void *at, char *text, size_t text_bytes)
{
    struct host_barrier *barrier = at;
    bool broken;

    pthread_mutex_lock(&barrier->lock);
    broken = barrier->broken;
    pthread_mutex_unlock(&barrier->lock);
    if (broken) {
        snprintf(text, text_bytes, "another rank has failed");
    }
    return broken;
}
