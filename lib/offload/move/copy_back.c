/*
 * copy_back.c - the way back: what is on the host is copied into a buffer, and
 * a backward reads it there.
 *
 * A load issues the copy, unless prefetch.c has issued it before.  What waits
 * for what is in move.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

#include "base/error.h"
#include "offload/decide/measure.h"
#include "offload/move/copy.h"

/* Takes the buffer from another instance that was brought back and is not
 * read yet.  The host still has that one, so it is copied again when it is
 * needed. */
static gh_status clear_buffer(struct gh_offload *o, struct gh_ring_buffer *back,
                              const struct gh_instance *wanted, gh_error *err)
{
    struct gh_instance *holder = back->holder;

    if (holder == NULL) {
        return GH_OK;
    }
    if (holder->state != GH_INSTANCE_BACK) {
        return gh_fail(
            err, GH_ERR_STATE,
            "offload: %s shares a buffer with %s, which is not "
            "released yet: release it first, or raise "
            "GRAPHHOOKS_OFFLOAD_BUFFERS",
            gh_group_name(o, wanted->group->layer, wanted->group->module).text,
            gh_group_name(o, holder->group->layer, holder->group->module).text);
    }
    holder->state = GH_INSTANCE_AWAY;
    holder->back = NULL;
    back->holder = NULL;
    return GH_OK;
}

static gh_status issue_back(struct gh_offload *o, const struct gh_instance *i,
                            const struct gh_ring_buffer *back, gh_error *err)
{
    struct gh_span *span = gh_copy_trace(o, i, GH_WORK_BACK, o->back);
    gh_status status = GH_OK;

    for (uint32_t r = 0; r < i->n_runs && status == GH_OK; r++) {
        const struct gh_run *run = &i->runs[r];

        status = gh_device_copy_back(o->dev, gh_run_at(back->address, run),
                                     gh_run_at(i->block->address, run),
                                     run->bytes, o->back, err);
        o->stats.back_copies++;
        o->stats.back_bytes += run->bytes;
    }
    gh_spans_end(o->spans, span);
    return status;
}

static gh_status copy_back(struct gh_offload *o, struct gh_instance *i,
                           struct gh_ring_buffer *back, gh_error *err)
{
    gh_status status;

    status = gh_pinned_wait(&o->pinned, i->block, o->back, err);
    if (status == GH_OK) {
        status = gh_device_event_wait(o->dev, o->back, back->read, err);
    }
    if (gh_is_measured(o)) {
        gh_measure_copy_begin(o, i, false);
    }
    if (status == GH_OK) {
        status = issue_back(o, i, back, err);
    }
    if (gh_is_measured(o)) {
        gh_measure_copy_end(o, back, false);
    }
    if (status == GH_OK) {
        status = gh_device_event_record(o->dev, back->filled, o->back, err);
    }
    if (status == GH_OK) {
        status = gh_pinned_mark(&o->pinned, i->block, o->back, err);
    }
    if (status != GH_OK) { /* some of it may be issued */
        gh_device_event_must_record(o->dev, back->filled, o->back);
        return status;
    }
    gh_ring_hold(&i->group->size_class->back, back, i);
    i->back = back;
    i->state = GH_INSTANCE_BACK;
    return GH_OK;
}

void gh_move_again(struct gh_offload *o, struct gh_instance *i, void *stream)
{
    struct gh_ring_buffer *back = i->back;
    const enum gh_instance_state state = i->state;
    gh_status status;

    if (back == NULL) {
        return;
    }
    gh_device_event_must_record(o->dev, back->read, stream);
    status = copy_back(o, i, back, NULL);
    if (state == GH_INSTANCE_READING) {
        gh_device_event_must_wait(o->dev, stream, back->filled);
    }
    i->state = state;
    if (status != GH_OK && state != GH_INSTANCE_READING) {
        gh_move_unload(o, i); /* its load tries once more */
    }
}

gh_status gh_move_back(struct gh_offload *o, struct gh_instance *i,
                       struct gh_ring_buffer *back, bool ahead, gh_error *err)
{
    gh_status status;

    if (i->back == back) {
        return GH_OK;
    }
    status = clear_buffer(o, back, i, err);
    if (status != GH_OK) {
        return status;
    }
    if (i->back != NULL) { /* it was brought back into another buffer */
        i->back->holder = NULL;
        i->back = NULL;
        i->state = GH_INSTANCE_AWAY;
    }
    o->stats.late += !ahead;
    return copy_back(o, i, back, err);
}
