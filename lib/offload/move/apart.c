/*
 * apart.c - copies out that do not begin while an exchange is under way.
 *
 * Copies to and from the host slow an exchange beside them.  So the commits that
 * are delayed are issued after an exchange, and their copies wait until it has
 * ended.  A copy that has begun before goes on.  Copies back have no such time:
 * a backward waits for them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

/* Best effort: an exchange without its event is one that copies go beside.  So
 * is one that the host captures, as copies are no part of its graph. */
void gh_move_behind(struct gh_offload *o, void *stream)
{
    if (gh_device_is_capturing(o->dev, stream)) {
        return;
    }
    if (o->exchanged == NULL &&
        gh_device_event_create(o->dev, &o->exchanged, NULL) != GH_OK) {
        o->exchanged = NULL;
        return;
    }
    o->behind =
        gh_device_event_record(o->dev, o->exchanged, stream, NULL) == GH_OK;
}

gh_status gh_move_stay_behind(struct gh_offload *o, gh_error *err)
{
    gh_status status = GH_OK;

    if (o->behind) {
        status = gh_device_event_wait(o->dev, o->out, o->exchanged, err);
        o->behind = status != GH_OK;
    }
    return status;
}
