/*
 * state.c - frees pairings and their timers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "device/device.h"

#include <stdlib.h>

void gh_times_free(struct gh_schedule *s, struct gh_pairing *p)
{
    for (uint32_t i = 0; p->timers != NULL && i < 2 * p->tasks.n; i++) {
        gh_device_event_destroy(s->dev, p->timers[i]);
    }
    free(p->timers);
    p->timers = NULL;
}

void gh_pairing_free(struct gh_schedule *s, struct gh_pairing *p)
{
    gh_times_free(s, p);
    gh_walk_free(&p->walk);
    gh_tasks_free(&p->tasks);
    free(p);
}

void gh_pairings_free(struct gh_schedule *s)
{
    for (uint32_t i = 0; i < s->n_pairings; i++) {
        gh_pairing_free(s, s->pairings[i]);
    }
    free(s->pairings);
    s->pairings = NULL;
    s->n_pairings = s->room = s->last = 0;
}
