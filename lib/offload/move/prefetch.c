/*
 * prefetch.c - copies back that are issued before their groups are asked for.
 *
 * A backward reads the groups of its forward in the opposite order, so what was
 * committed before the group at hand is what comes next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

/* Groups that are looked at: far enough for every ring to be full. */
#define LOOK_AHEAD 16

void gh_move_prefetch(struct gh_offload *o, const struct gh_instance *from)
{
    const uint32_t most = o->forecast.prefetch;
    struct gh_instance *i = from->before;
    uint32_t ahead = 0;

    for (int looked = 0; i != NULL && looked < LOOK_AHEAD; i = i->before) {
        struct gh_ring_buffer *back;

        if (i->microbatch != from->microbatch ||
            i->group->chunk != from->group->chunk) {
            continue;
        }
        looked++;
        if (!i->goes || !o->profiled) {
            continue;
        }
        if (most != 0 && ++ahead > most) {
            return;
        }
        if (i->state != GH_INSTANCE_AWAY) {
            continue;
        }
        back =
            gh_ring_buffer_of(&i->group->size_class->back, i->group, i->slot);
        if (back->holder == NULL) {
            (void)gh_move_back(o, i, back, true, NULL);
        }
    }
}
