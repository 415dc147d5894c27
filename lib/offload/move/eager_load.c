/*
 * eager_load.c - a backward that runs eagerly loads and releases.
 *
 * A load says where each tensor is, and makes the host's stream wait until it
 * is there.  A release marks it as read.  Both issue the copies back of what
 * comes next.  launch.c does the same around the launch of a recorded
 * backward.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/calls.h"

#include "base/error.h"
#include "offload/decide/measure.h"
#include "offload/groups/group.h"
#include "offload/groups/host_owned.h"
#include "offload/move/move.h"

static gh_status choose_back(struct gh_offload *o, const struct gh_instance *i,
                             struct gh_ring_buffer **back_p, gh_error *err)
{
    struct gh_ring *ring = &i->group->size_class->back;
    gh_status status;

    status = gh_ring_grow(ring, o->options.buffers, o->memory, err);
    if (status != GH_OK) {
        return status;
    }
    if (ring->n_indexed != 0) {
        *back_p = gh_ring_buffer_of(ring, i->group, i->slot);
        if ((*back_p)->holder == NULL ||
            (*back_p)->holder->state == GH_INSTANCE_BACK) {
            return GH_OK;
        }
    }
    *back_p = gh_ring_oldest(ring);
    if (*back_p == NULL) {
        status = gh_ring_grow(ring, ring->n + 1, o->memory, err);
        *back_p = gh_ring_oldest(ring);
    }
    return status;
}

static gh_status bring_back(struct gh_offload *o, struct gh_instance *i,
                            gh_error *err)
{
    struct gh_ring_buffer *back = i->back;
    gh_status status = GH_OK;

    if (back == NULL) {
        status = choose_back(o, i, &back, err);
        if (status == GH_OK) {
            status = gh_move_back(o, i, back, false, err);
        }
    }
    return status == GH_OK
               ? gh_device_event_wait(o->dev, i->stream, back->filled, err)
               : status;
}

static void lay_out(const struct gh_offload *o, const struct gh_instance *i,
                    gh_offload_group *wanted)
{
    void *moved = i->goes ? i->back->address : NULL;

    if (gh_instance_is_host_owned(i)) {
        gh_host_owned_lay_out(i->host_memory, wanted, moved, i->held);
    } else {
        gh_group_lay_out(o, wanted, i->goes, moved, i->held);
    }
}

static gh_status check_tensors(const struct gh_offload *o,
                               const struct gh_instance *i,
                               const gh_offload_group *wanted, gh_error *err)
{
    if (gh_instance_is_host_owned(i)) {
        return gh_host_owned_fits(i->host_memory, wanted)
                   ? GH_OK
                   : gh_host_owned_refuse_load(o, i->host_memory, wanted, err);
    }
    return gh_group_split(o, wanted, i->goes).layout == i->layout
               ? GH_OK
               : gh_group_refuse_tensors(o, i, wanted, err);
}

gh_status gh_offload_load_eager(struct gh_offload *o,
                                const struct gh_offload_at *at,
                                gh_offload_group *wanted, gh_error *err)
{
    struct gh_instance *i;
    gh_status status =
        gh_group_saved(o, at, wanted->layer, wanted->module, &i, err);

    if (status != GH_OK) {
        return status;
    }
    if (!gh_instance_is_committed(i) || i->microbatch != at->microbatch) {
        return gh_group_refuse(o, i, "gh_offload_load", err);
    }
    status = check_tensors(o, i, wanted, err);
    if (status != GH_OK) {
        return status;
    }
    i->stream = at->stream;
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_LOAD_ASKED, i, i->stream);
    }
    if (i->goes) {
        status = bring_back(o, i, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_LOAD, i, i->stream);
    }
    i->pass = at->pass;
    i->state = GH_INSTANCE_READING;
    i->said = true;
    lay_out(o, i, wanted);
    gh_move_prefetch(o, i);
    return GH_OK;
}

/* The last reader is issued: others may have the memory. */
static gh_status finish(struct gh_offload *o, struct gh_instance *i,
                        gh_error *err)
{
    gh_status status = GH_OK;

    if (i->goes) {
        gh_move_discard(o, i->back->address, i->bytes, i->stream, NULL);
        status = gh_device_event_record(o->dev, i->back->read, i->stream, err);
    }
    if (status != GH_OK) {
        return status;
    }
    gh_move_note_end(o, i);
    gh_loans_end_instance(&o->loans, i);
    gh_move_end(o, i);
    gh_move_prefetch(o, i);
    gh_move_unlink(o, i);
    i->state = GH_INSTANCE_IDLE;
    return GH_OK;
}

gh_status gh_offload_release_eager(struct gh_offload *o,
                                   const struct gh_offload_at *at,
                                   gh_offload_group *wanted, gh_error *err)
{
    struct gh_instance *i;
    gh_status status =
        gh_group_saved(o, at, wanted->layer, wanted->module, &i, err);

    if (status != GH_OK) {
        return status;
    }
    if (i->state != GH_INSTANCE_READING) {
        return gh_group_refuse(o, i, "gh_offload_release", err);
    }
    i->stream = at->stream;
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_RELEASE, i, i->stream);
    }
    if (!at->compares) {
        return finish(o, i, err);
    }
    i->pass = at->pass;
    i->state = GH_INSTANCE_RELEASED;
    return GH_OK;
}

gh_status gh_offload_compared(struct gh_offload *o, uint64_t pass,
                              gh_error *err)
{
    struct gh_device_before before = gh_device_enter(o->dev);
    struct gh_instance *next;
    gh_status status = o->options.delay ? GH_OK : gh_move_flush(o, err);

    for (struct gh_instance *i = o->newest; i != NULL; i = next) {
        next = i->before;
        if (i->state == GH_INSTANCE_RELEASED && i->pass == pass &&
            status == GH_OK) {
            status = finish(o, i, err);
        }
    }
    gh_device_leave(o->dev, before);
    return status;
}
