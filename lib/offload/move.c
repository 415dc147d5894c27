/*
 * move.c - see move.h.
 *
 * Every edge is an event of one buffer or one block, never one for all:
 *
 *     copy out        waits for filled (out) and for the block's last copy
 *     next writer     waits for read (out)
 *     copy back       waits for the block's last copy, which is its own copy
 *                     out, and for read (back)
 *     reader          waits for filled (back)
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move.h"

#include "base/error.h"
#include "offload/measure.h"
#include "offload/own.h"

/* ---- the order of commits ------------------------------------------------ */

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

/* ---- out ------------------------------------------------------------------ */

/* Nobody's group is in the buffer any more.  Who writes it next may wait for the
 * copy only once that is issued. */
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
        status = gh_pinned_take(&o->pinned, i->group->size_class->bytes,
                                &i->block, err);
        if (status != GH_OK) {
            return status;
        }
    }
    i->bytes = bytes;
    i->goes = true;
    i->out = out;
    if (out != NULL) {
        gh_ring_hold(&i->group->size_class->out, out, i);
    }
    i->state = GH_INSTANCE_WRITING;
    return GH_OK;
}

static void let_block_go(struct gh_offload *o, struct gh_instance *i)
{
    if (i->block != NULL) {
        gh_pinned_give_back(&o->pinned, i->block);
        i->block = NULL;
    }
}

static void let_loan_go(struct gh_offload *o, struct gh_instance *i)
{
    if (i->loan != NULL) {
        gh_loans_end(&o->loans, i->loan);
        i->loan = NULL;
    }
}

void gh_move_cancel(struct gh_offload *o, struct gh_instance *i)
{
    if (i->out != NULL) {
        i->out->holder = NULL;
        i->out = NULL;
    }
    let_block_go(o, i);
    let_loan_go(o, i);
    i->state = GH_INSTANCE_IDLE;
}

static gh_status wait_for_block(struct gh_offload *o,
                                const struct gh_pinned_block *block,
                                void *stream, gh_error *err)
{
    return block->used
               ? gh_device_event_wait(o->dev, stream, block->copied, err)
               : GH_OK;
}

static gh_status mark_block(struct gh_offload *o, struct gh_pinned_block *block,
                            void *stream, gh_error *err)
{
    block->used = true;
    return gh_device_event_record(o->dev, block->copied, stream, err);
}

/* Begins the copy's span in the trace, if there is one. */
static struct gh_span *trace(struct gh_offload *o, const struct gh_instance *i,
                             enum gh_work work, void *stream)
{
    struct gh_span_what what = { .work = work };

    if (o->spans == NULL) {
        return NULL;
    }
    what.layer = i->group->layer;
    what.module = i->group->module;
    what.microbatch = i->microbatch;
    what.slot = i->slot;
    for (uint32_t r = 0; r < i->n_runs; r++) {
        what.bytes += i->runs[r].bytes;
    }
    return gh_spans_begin(o->spans, &what, stream);
}

static char *at(void *base, const struct gh_run *run)
{
    return (char *)base + run->offset;
}

/* Copies that are to be issued, those of one call at a time. */
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

        copies->to[n] = (uintptr_t)at(i->block->address, run);
        copies->from[n] = (uintptr_t)(run->from != NULL
                                          ? run->from
                                          : at(i->out->address, run));
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
    struct gh_span *span = trace(o, i, GH_WORK_OUT, o->out);
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

/* Without a buffer the host's own memory is read, whose loan has one mark for
 * both. */
static void *filled_of(const struct gh_instance *i)
{
    return i->out != NULL ? i->out->filled : i->loan->mark;
}

static void *read_of(const struct gh_instance *i)
{
    return i->out != NULL ? i->out->read : i->loan->mark;
}

/* It is issued. */
static void leave_device(struct gh_offload *o, struct gh_instance *i)
{
    if (i->out != NULL) {
        i->out->holder = NULL;
        i->out = NULL;
    } else {
        gh_loans_leave(&o->loans, i->loan, i->group->size_class);
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
        status = wait_for_block(o, i->block, o->out, err);
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
        status = mark_block(o, i->block, o->out, err);
    }
    if (status == GH_OK) {
        leave_device(o, i);
    }
    return status;
}

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

gh_status gh_move_out(struct gh_offload *o, struct gh_instance *i,
                      gh_error *err)
{
    gh_status status = GH_OK;

    if (o->options.delay) {
        queue(o, i);
        o->stats.delayed++;
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
    if (gh_move_out(o, i, NULL) != GH_OK) {
        queue(o, i);
        gh_move_link(o, i);
    }
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

/* All of them wait, then all are copied in as few calls as may be, and then all
 * are marked.  What fails is issued again. */
static gh_status copy_queue_out(struct gh_offload *o, gh_error *err)
{
    struct gh_copies_out copies;
    struct gh_instance *i;
    gh_status status = GH_OK;

    copies.n = 0;
    for (i = o->first_queued; i != NULL && status == GH_OK;
         i = i->next_queued) {
        status = gh_device_event_wait(o->dev, o->out, filled_of(i), err);
        if (status == GH_OK) {
            status = wait_for_block(o, i->block, o->out, err);
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
            status = mark_block(o, i->block, o->out, err);
        }
        if (status == GH_OK) {
            o->first_queued = i->next_queued;
            leave_device(o, i);
        }
    }
    return status;
}

/* Copies of one call have no times of their own. */
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

/* ---- back ----------------------------------------------------------------- */

/* What another instance has brought back and not read yet is on the host
 * still: it comes again when it is needed. */
static gh_status clear_buffer(struct gh_offload *o, struct gh_ring_buffer *back,
                              const struct gh_instance *wanted, gh_error *err)
{
    struct gh_instance *holder = back->holder;

    if (holder == NULL) {
        return GH_OK;
    }
    if (holder->state != GH_INSTANCE_BACK) {
        return gh_fail(err, GH_ERR_STATE,
                       "offload: %s shares a buffer with %s, which is not "
                       "released yet: release it first, or raise "
                       "GRAPHHOOKS_OFFLOAD_BUFFERS",
                       gh_group_name(o, wanted->group->layer,
                                     wanted->group->module)
                           .text,
                       gh_group_name(o, holder->group->layer,
                                     holder->group->module)
                           .text);
    }
    holder->state = GH_INSTANCE_AWAY;
    holder->back = NULL;
    back->holder = NULL;
    return GH_OK;
}

static gh_status issue_back(struct gh_offload *o, const struct gh_instance *i,
                            const struct gh_ring_buffer *back, gh_error *err)
{
    struct gh_span *span = trace(o, i, GH_WORK_BACK, o->back);
    gh_status status = GH_OK;

    for (uint32_t r = 0; r < i->n_runs && status == GH_OK; r++) {
        const struct gh_run *run = &i->runs[r];

        status = gh_device_copy_back(o->dev, at(back->address, run),
                                     at(i->block->address, run), run->bytes,
                                     o->back, err);
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

    status = wait_for_block(o, i->block, o->back, err);
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
        status = mark_block(o, i->block, o->back, err);
    }
    if (status != GH_OK) {
        return status;
    }
    gh_ring_hold(&i->group->size_class->back, back, i);
    i->back = back;
    i->state = GH_INSTANCE_BACK;
    return GH_OK;
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
    if (i->back != NULL) { /* in another buffer than the one that is meant */
        i->back->holder = NULL;
        i->back = NULL;
        i->state = GH_INSTANCE_AWAY;
    }
    o->stats.late += !ahead;
    return copy_back(o, i, back, err);
}

/* Groups that are looked at: far enough for every ring to be full. */
#define LOOK_AHEAD 16

void gh_move_ahead(struct gh_offload *o, const struct gh_instance *from)
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
        back = gh_ring_place(&i->group->size_class->back, i->group, i->slot);
        if (back->holder == NULL) {
            (void)gh_move_back(o, i, back, true, NULL);
        }
    }
}

void gh_move_end(struct gh_offload *o, struct gh_instance *i)
{
    if (i->back != NULL) {
        i->back->holder = NULL;
        i->back = NULL;
    }
    let_block_go(o, i);
    let_loan_go(o, i);
    i->state = GH_INSTANCE_RELEASED;
}

/* Without a slot nobody but the instance keeps the order of its users. */
gh_status gh_move_note_end(struct gh_offload *o, struct gh_instance *i,
                           gh_error *err)
{
    gh_status status = GH_OK;

    if (i->slot != GH_SLOT_NONE || i->stays == 0) {
        return GH_OK;
    }
    if (i->ended == NULL) {
        status = gh_device_event_create(o->dev, &i->ended, err);
    }
    return status == GH_OK
               ? gh_device_event_record(o->dev, i->ended, i->stream, err)
               : status;
}

/* ---- what was given up ------------------------------------------------------- */

/* Who writes there next comes after the writers so far, and after what was
 * issued of the copy. */
static void let_out_go(struct gh_offload *o, const struct gh_instance *i)
{
    if (i->out != NULL) {
        (void)gh_device_event_record(o->dev, i->out->filled, i->stream, NULL);
        (void)gh_device_event_wait(o->dev, o->out, i->out->filled, NULL);
        (void)gh_device_event_record(o->dev, i->out->read, o->out, NULL);
    }
    if (i->block != NULL) {
        (void)wait_for_block(o, i->block, o->out, NULL);
        (void)mark_block(o, i->block, o->out, NULL);
    }
}

/* A copy that failed may have been issued in part. */
static void let_lent_go(struct gh_offload *o, struct gh_instance *i)
{
    if (gh_device_event_record(o->dev, i->loan->mark, o->out, NULL) == GH_OK) {
        gh_loans_leave(&o->loans, i->loan, i->group->size_class);
    } else {
        gh_loans_lose(&o->loans, i->loan);
    }
    i->loan = NULL;
}

void gh_move_unload(struct gh_offload *o, struct gh_instance *i)
{
    if (i->back != NULL) {
        (void)gh_device_event_record(o->dev, i->back->read, i->stream, NULL);
        i->back->holder = NULL;
        i->back = NULL;
    }
    i->state = GH_INSTANCE_AWAY;
}

void gh_move_abandon(struct gh_offload *o, struct gh_instance *i)
{
    if (i->state == GH_INSTANCE_QUEUED) {
        gh_move_unqueue(o, i);
    }
    if (i->out != NULL || (i->goes && i->loan != NULL)) {
        let_out_go(o, i);
    }
    if (i->goes && i->loan != NULL) {
        let_lent_go(o, i);
    }
    if (i->state == GH_INSTANCE_READING) {
        gh_move_unload(o, i);
    }
    (void)gh_move_note_end(o, i, NULL);
    gh_move_unlink(o, i);
    gh_move_end(o, i);
    gh_move_cancel(o, i);
}
