/*
 * lists.c - the lists of instances: in the order of commits, and those whose
 * commit is queued.
 *
 * The order is a list through gh_instance.before and .after, with its end in
 * gh_offload.newest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

void gh_move_link(struct gh_offload *o, struct gh_instance *i)
{
    i->after = NULL;
    i->before = o->newest;
    if (o->newest != NULL) {
        o->newest->after = i;
    }
    o->newest = i;
}

void gh_move_unlink(struct gh_offload *o, struct gh_instance *i)
{
    if (i->before != NULL) {
        i->before->after = i->after;
    }
    if (i->after != NULL) {
        i->after->before = i->before;
    } else if (o->newest == i) {
        o->newest = i->before;
    }
    i->before = i->after = NULL;
}

void gh_move_unqueue(struct gh_offload *o, const struct gh_instance *i)
{
    struct gh_instance *before = NULL;
    struct gh_instance *at = o->first_queued;

    while (at != NULL && at != i) {
        before = at;
        at = at->next_queued;
    }
    if (at == NULL) {
        return;
    }
    if (before != NULL) {
        before->next_queued = at->next_queued;
    } else {
        o->first_queued = at->next_queued;
    }
    if (o->last_queued == at) {
        o->last_queued = before;
    }
}
