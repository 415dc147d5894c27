/*
 * meeting.c - see meeting.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/meeting.h"

#include <stdio.h>

void meeting_init(struct meeting *meeting, int n)
{
    *meeting = (struct meeting){ .n = n };
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->news, NULL);
}

void meeting_destroy(struct meeting *meeting)
{
    pthread_cond_destroy(&meeting->news);
    pthread_mutex_destroy(&meeting->lock);
}

int meeting_wait(struct meeting *meeting)
{
    unsigned round;
    bool met;

    pthread_mutex_lock(&meeting->lock);
    round = meeting->rounds;
    if (++meeting->here == meeting->n) {
        meeting->here = 0;
        meeting->rounds++;
        pthread_cond_broadcast(&meeting->news);
    }
    while (meeting->rounds == round && !meeting->broken) {
        pthread_cond_wait(&meeting->news, &meeting->lock);
    }
    met = meeting->rounds != round;
    pthread_mutex_unlock(&meeting->lock);
    return met ? 0 : -1;
}

void meeting_break(void *at, const char *why)
{
    struct meeting *meeting = at;

    (void)why; /* the rank itself reports it */
    pthread_mutex_lock(&meeting->lock);
    meeting->broken = true;
    pthread_cond_broadcast(&meeting->news);
    pthread_mutex_unlock(&meeting->lock);
}

bool meeting_lost(void *at, char *text, size_t text_bytes)
{
    struct meeting *meeting = at;
    bool broken;

    pthread_mutex_lock(&meeting->lock);
    broken = meeting->broken;
    pthread_mutex_unlock(&meeting->lock);
    if (broken) {
        snprintf(text, text_bytes, "another rank has failed");
    }
    return broken;
}
