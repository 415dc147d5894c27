/*
 * copy_out.c - the way to the host: a buffer for what is written, and its copy
 * once that is committed.
 *
 * A commit issues its copy at once, or puts the instance into a queue.  A flush
 * issues the copies of all that is queued, in as few calls of the driver as it
 * can.  What waits for what is in move.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

#include "base/error.h"
#include "offload/decide/measure.h"
#include "offload/groups/host_owned.h"
#include "offload/move/copy.h"

/* Makes sure that nobody's group is in the buffer.  A copy that is queued is
 * issued first: only then can the next writer wait for it. */
static gh_status clear_out(struct gh_offload *o, const struct gh_instance *i,
                           const struct gh_ring_buffer *out, gh_error *err)
{
    const struct gh_group *other;
    gh_status status = GH_OK;

    if (out->holder != NULL && out->holder->state == GH_INSTANCE_QUEUED) {
        status = gh_move_flush(o, err);
    }
    if (status != GH_OK || out->holder == NULL || out->holder == i) {
        return status;
    }
    other = out->holder->group;
    return gh_fail(err, GH_ERR_STATE,
                   "offload: %s shares a buffer with %s, which is not "
                   "committed yet: commit it first, or raise "
                   "GRAPHHOOKS_OFFLOAD_BUFFERS",
                   gh_group_name(o, i->group->layer, i->group->module).text,
                   gh_group_name(o, other->layer, other->module).text);
}

gh_status gh_move_begin(struct gh_offload *o, struct gh_instance *i,
                        struct gh_ring_buffer *out, uint64_t bytes,
                        gh_error *err)
{
    gh_status status = out != NULL ? clear_out(o, i, out, err) : GH_OK;

    if (status != GH_OK) {
        return status;
    }
    if (!i->for_nobody) {
        status =
            gh_pinned_take(&o->pinned, i->size_class->bytes, &i->block, err);
        if (status != GH_OK) {
            return status;
        }
    }
    i->bytes = bytes;
    i->goes = true;
    i->out = out;
    if (out != NULL) {
        gh_ring_hold(&i->size_class->out, out, i);
    }
    i->state = GH_INSTANCE_WRITING;
    return GH_OK;
}

/* Issues the copies that were gathered, in one call, and begins anew. */
static gh_status issue_all(struct gh_offload *o, struct gh_copies_out *copies,
                           gh_error *err)
{
    gh_status status = gh_device_copy_all_out(o->dev, copies, o->out, err);

    copies->n = 0;
    return status;
}

static gh_status add_runs(struct gh_offload *o, const struct gh_instance *i,
                          struct gh_copies_out *copies, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t r = 0; r < i->n_runs && status == GH_OK; r++) {
        const struct gh_run *run = &i->runs[r];
        const uint32_t n = copies->n++;

        copies->to[n] = (uintptr_t)gh_run_at(i->block->address, run);
        copies->from[n] =
            (uintptr_t)(run->from != NULL ? run->from
                                          : gh_run_at(i->out->address, run));
        copies->bytes[n] = run->bytes;
        o->stats.out_copies++;
        o->stats.out_bytes += run->bytes;
        if (copies->n == GH_COPIES_OUT) {
            status = issue_all(o, copies, err);
        }
    }
    return status;
}

static gh_status issue_out(struct gh_offload *o, const struct gh_instance *i,
                           gh_error *err)
{
    struct gh_span *span = gh_copy_trace(o, i, GH_WORK_OUT, o->out);
    struct gh_copies_out copies;
    gh_status status;

    copies.n = 0;
    status = add_runs(o, i, &copies, err);
    if (status == GH_OK) {
        status = issue_all(o, &copies, err);
    }
    gh_spans_end(o->spans, span);
    return status;
}

/* The event that says that the memory to be copied is written.  Without a
 * buffer that is the host's own memory, and its loan has one mark for both
 * ends. */
static void *filled_of(const struct gh_instance *i)
{
    return i->out != NULL ? i->out->filled : i->loan->mark;
}

static void *read_of(const struct gh_instance *i)
{
    return i->out != NULL ? i->out->read : i->loan->mark;
}

/* The copy is issued: gives back the buffer or the loan. */
static void leave_device(struct gh_offload *o, struct gh_instance *i)
{
    if (i->out != NULL) {
        gh_move_discard(o, i->out->address, i->bytes, o->out, i->out->read);
        i->out->holder = NULL;
        i->out = NULL;
    } else {
        gh_loans_leave(&o->loans, i->loan, i->size_class);
        i->loan = NULL;
    }
    i->state = GH_INSTANCE_AWAY;
}

static gh_status copy_out(struct gh_offload *o, struct gh_instance *i,
                          gh_error *err)
{
    gh_status status;

    status = gh_device_event_wait(o->dev, o->out, filled_of(i), err);
    if (status == GH_OK) {
        status = gh_pinned_wait(&o->pinned, i->block, o->out, err);
    }
    if (status == GH_OK) {
        status = gh_move_stay_behind(o, err);
    }
    if (gh_is_measured(o)) {
        gh_measure_copy_begin(o, i, true);
    }
    if (status == GH_OK) {
        status = issue_out(o, i, err);
    }
    if (gh_is_measured(o)) {
        gh_measure_copy_end(o, i->out, true);
    }
    if (status == GH_OK) {
        status = gh_device_event_record(o->dev, read_of(i), o->out, err);
    }
    if (status == GH_OK) {
        status = gh_pinned_mark(&o->pinned, i->block, o->out, err);
    }
    if (status == GH_OK) {
        leave_device(o, i);
    }
    return status;
}

/* ---- now, or with the next flush --------------------------------------- */

static void queue(struct gh_offload *o, struct gh_instance *i)
{
    i->state = GH_INSTANCE_QUEUED;
    i->next_queued = NULL;
    if (o->last_queued != NULL) {
        o->last_queued->next_queued = i;
    } else {
        o->first_queued = i;
    }
    o->last_queued = i;
}

gh_status gh_move_out(struct gh_offload *o, struct gh_instance *i, bool later,
                      gh_error *err)
{
    gh_status status = GH_OK;

    if (o->options.delay || later) {
        queue(o, i);
        o->stats.delayed += o->options.delay;
    } else {
        status = copy_out(o, i, err);
    }
    if (status == GH_OK) {
        gh_move_link(o, i);
    }
    return status;
}

void gh_move_out_or_queue(struct gh_offload *o, struct gh_instance *i)
{
    if (gh_move_out(o, i, false, NULL) != GH_OK) {
        queue(o, i);
        gh_move_link(o, i);
    }
}

/* First the stream waits for all that is queued, then all copies are issued in
 * as few calls as possible, and then all are marked.  What is not marked after
 * a failure stays in the queue and is issued again. */
static gh_status copy_queue_out(struct gh_offload *o, gh_error *err)
{
    struct gh_copies_out copies;
    struct gh_instance *i;
    gh_status status = GH_OK;

    copies.n = 0;
    status = gh_move_stay_behind(o, err);
    for (i = o->first_queued; i != NULL && status == GH_OK;
         i = i->next_queued) {
        status = gh_device_event_wait(o->dev, o->out, filled_of(i), err);
        if (status == GH_OK) {
            status = gh_pinned_wait(&o->pinned, i->block, o->out, err);
        }
        if (status == GH_OK) {
            status = add_runs(o, i, &copies, err);
        }
    }
    if (status == GH_OK) {
        status = issue_all(o, &copies, err);
    }
    while ((i = o->first_queued) != NULL && status == GH_OK) {
        status = gh_device_event_record(o->dev, read_of(i), o->out, err);
        if (status == GH_OK) {
            status = gh_pinned_mark(&o->pinned, i->block, o->out, err);
        }
        if (status == GH_OK) {
            o->first_queued = i->next_queued;
            leave_device(o, i);
        }
    }
    return status;
}

/* Whether each group's copies are timed.  Those that share a call have no times
 * of their own. */
static bool is_timed(const struct gh_offload *o)
{
    return o->spans != NULL || gh_is_measured(o);
}

gh_status gh_move_flush(struct gh_offload *o, gh_error *err)
{
    struct gh_device_before before;
    gh_status status = GH_OK;

    if (o->first_queued == NULL) {
        return GH_OK;
    }
    before = gh_device_enter(o->dev);
    if (gh_device_has_batches(o->dev) && !is_timed(o)) {
        status = copy_queue_out(o, err);
    }
    while (o->first_queued != NULL && status == GH_OK) {
        status = copy_out(o, o->first_queued, err);
        if (status == GH_OK) {
            o->first_queued = o->first_queued->next_queued;
        }
    }
    gh_device_leave(o->dev, before);
    if (o->first_queued == NULL) {
        o->last_queued = NULL;
    }
    o->stats.flushes++;
    return status;
}
