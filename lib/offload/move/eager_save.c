/*
 * eager_save.c - a forward that runs eagerly saves and commits.
 *
 * A save gives the host an address for each tensor, and makes its stream wait
 * until that may be written.  A commit marks it as written and issues the copy
 * out.  launch.c does the same around the launch of a recorded forward.
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

/* ---- where it goes ----------------------------------------------------- */

/* Chooses a buffer of the ring: that of the group's index if it is free, or
 * else any that is free.  If the host has all of them open at once, the ring
 * gets one more. */
static gh_status choose_out(struct gh_offload *o, const struct gh_instance *i,
                            struct gh_ring_buffer **out_p, gh_error *err)
{
    struct gh_ring *ring = &i->size_class->out;
    gh_status status;

    status = gh_ring_grow(ring, o->options.buffers, o->memory, err);
    if (status != GH_OK) {
        return status;
    }
    if (ring->n_indexed != 0) {
        *out_p = gh_ring_buffer_of(ring, i->group, i->slot);
        if ((*out_p)->holder == NULL ||
            (*out_p)->holder->state == GH_INSTANCE_QUEUED) {
            return GH_OK;
        }
    }
    *out_p = gh_ring_oldest(ring);
    if (*out_p == NULL && o->first_queued != NULL) {
        status = gh_move_flush(o, err);
        *out_p = gh_ring_oldest(ring);
    }
    if (*out_p == NULL && status == GH_OK) {
        status = gh_ring_grow(ring, ring->n + 1, o->memory, err);
        *out_p = gh_ring_oldest(ring);
    }
    return status;
}

/* Whether the part that can go goes this time. */
static bool can_go(struct gh_offload *o, const struct gh_instance *i,
                   const struct gh_split *split)
{
    struct gh_group *group = i->group;
    const bool asked =
        group->fate == GH_FATE_GOES ||
        (group->fate == GH_FATE_SMALL && !o->profiled); /* until now */

    if (i->unpinned || !asked || i->size_class == NULL || split->goes == 0) {
        return false;
    }
    if (split->goes <= i->size_class->bytes) {
        return true;
    }
    if (!group->growth_said) {
        group->growth_said = true;
        gh_log_line(o->log, GH_LOG_WARN,
                    "offload: %s has %llu bytes, and had %llu in the first "
                    "step: it stays on the device where it is larger",
                    gh_group_name(o, group->layer, group->module).text,
                    (unsigned long long)split->goes,
                    (unsigned long long)i->size_class->bytes);
    }
    return false;
}

/* Takes a block and a buffer.  Without pinned memory the group stays.  What is
 * copied from where the host has it needs no buffer. */
static gh_status begin_to_go(struct gh_offload *o, struct gh_instance *i,
                             uint64_t bytes, bool direct, gh_error *err)
{
    struct gh_ring_buffer *out = NULL;
    gh_error why;
    gh_status status = direct ? GH_OK : choose_out(o, i, &out, err);

    if (status != GH_OK) {
        return status;
    }
    status = gh_move_begin(o, i, out, bytes, &why);
    if (status == GH_ERR_NO_MEMORY) {
        gh_group_say_pool(o, &why);
        return GH_OK;
    }
    if (status != GH_OK) {
        return gh_fail(err, status, "%s", why.text);
    }
    return direct ? GH_OK
                  : gh_device_event_wait(o->dev, i->stream, out->read, err);
}

/* Without a slot, only this event orders one user of the instance's memory
 * after the other. */
static gh_status follow_last(struct gh_offload *o, const struct gh_instance *i,
                             gh_error *err)
{
    return i->ended != NULL
               ? gh_device_event_wait(o->dev, i->stream, i->ended, err)
               : GH_OK;
}

/* Gives the instance memory for what stays, if that is to be written there. */
static gh_status begin_to_stay(struct gh_offload *o, struct gh_instance *i,
                               uint64_t bytes, gh_error *err)
{
    gh_status status = gh_group_keep(o, i, bytes, err);

    return status == GH_OK && bytes != 0 ? follow_last(o, i, err) : status;
}

/* ---- save -------------------------------------------------------------- */

/* Saves tensors that lie where the host has put them.  i->goes is decided by
 * now. */
static gh_status save_host_owned(struct gh_offload *o, struct gh_instance *i,
                                 const gh_offload_group *wanted, bool lent,
                                 gh_error *err)
{
    struct gh_host_owned *own = i->host_memory;
    const bool needed = !i->for_nobody;
    gh_status status;

    gh_host_owned_lay(o, wanted, i->goes, own);
    own->by_graph = false;
    own->mode = gh_host_owned_choose(i->goes, lent || !needed, true);
    i->n_runs = gh_host_owned_find_runs(own, own->mode == GH_HOST_OWNED_DIRECT,
                                        i->runs);
    status = begin_to_stay(
        o, i, own->mode == GH_HOST_OWNED_STAYS ? 0 : own->stays, err);
    if (status == GH_OK && lent) {
        status =
            gh_loans_begin(&o->loans, wanted->object,
                           own->mode == GH_HOST_OWNED_DIRECT, &i->loan, err);
    }
    return status;
}

static gh_status save_given(struct gh_offload *o, struct gh_instance *i,
                            gh_offload_group *wanted, gh_error *err)
{
    const struct gh_split split = gh_group_split(o, wanted, i->goes);
    gh_status status = begin_to_stay(o, i, split.stays, err);

    if (status == GH_OK) {
        gh_group_lay_out(o, wanted, i->goes, i->goes ? i->out->address : NULL,
                         i->held);
    }
    return status;
}

/* Resets what the instance knows of its last flight. */
static void begin_flight(struct gh_instance *i, const struct gh_offload_at *at,
                         uint64_t layout, struct gh_size_class *size_class)
{
    i->size_class = size_class;
    i->used = i->used || !at->forward_only;
    i->microbatch = at->microbatch;
    i->stream = at->stream;
    i->pass = at->pass;
    i->for_nobody = at->forward_only;
    i->goes = false;
    i->out = i->back = NULL;
    i->layout = layout;
    gh_host_owned_forget(i);
}

gh_status gh_offload_save_eager(struct gh_offload *o,
                                const struct gh_offload_at *at,
                                gh_offload_group *wanted, gh_error *err)
{
    const bool own = gh_is_host_owned(wanted);
    const bool lent = own && gh_group_is_lent(o, wanted);
    struct gh_size_class *size_class = NULL;
    struct gh_instance *i;
    struct gh_group *group;
    struct gh_split split;
    gh_status status;

    status = gh_group_meet(o, at, wanted, &group, &split, err);
    if (status == GH_OK) {
        status = gh_table_instance(&o->table, group, at->slot, at->microbatch,
                                   &i, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (gh_instance_is_live(i)) {
        return gh_group_refuse(o, i, "gh_offload_save", err);
    }
    status = gh_group_find_class(o, at, group, &split, &size_class, err);
    if (status == GH_OK && own) {
        status = gh_host_owned_make(i, err);
    }
    if (status != GH_OK) {
        return status;
    }
    begin_flight(i, at, split.layout, size_class);
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_SAVE_ASKED, i, i->stream);
    }
    if (!at->paused && !(own && i->for_nobody) && can_go(o, i, &split)) {
        i->n_runs = gh_group_find_runs(o, wanted, i->runs);
        status = begin_to_go(o, i, split.goes, lent, err);
    }
    if (status == GH_OK) {
        status = own ? save_host_owned(o, i, wanted, lent, err)
                     : save_given(o, i, wanted, err);
    }
    if (status != GH_OK) {
        gh_move_cancel(o, i);
        return status;
    }
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_SAVE, i, i->stream);
    }
    gh_group_learn(o, at, group, &split, size_class);
    i->state = GH_INSTANCE_WRITING;
    return GH_OK;
}

/* ---- commit ------------------------------------------------------------ */

/* No backward follows: the buffer is free once this forward has run. */
static void end_for_nobody(struct gh_offload *o, struct gh_instance *i)
{
    if (i->goes) {
        gh_device_discard(o->dev, i->out->address, i->bytes, i->stream, NULL);
        gh_device_event_must_record(o->dev, i->out->read, i->stream);
    }
    gh_move_note_end(o, i);
    gh_move_cancel(o, i);
}

/* Lets the copy read the host's own memory.  If too many copies are in flight,
 * the host's stream waits for the oldest. */
static gh_status mark_written(struct gh_offload *o, const struct gh_instance *i,
                              gh_error *err)
{
    void *oldest =
        gh_loans_mark_before(&o->loans, i->size_class, o->options.in_flight);
    gh_status status =
        gh_device_event_record(o->dev, i->loan->mark, i->stream, err);

    return status == GH_OK && oldest != NULL
               ? gh_device_event_wait(o->dev, i->stream, oldest, err)
               : status;
}

/* Commits tensors that lie where the host has put them.  They are copied from
 * there: now to a buffer, or later by the copy out. */
static gh_status commit_host_owned(struct gh_offload *o, struct gh_instance *i,
                                   gh_error *err)
{
    gh_status status = gh_host_owned_stage(
        o, i->host_memory, i->out != NULL ? i->out->address : NULL, i->held,
        i->stream, err);

    return status == GH_OK && i->host_memory->mode == GH_HOST_OWNED_DIRECT
               ? mark_written(o, i, err)
               : status;
}

/* Lets the copy read the buffer.  If too many copies are in flight, the host's
 * stream waits for the oldest. */
static gh_status mark_filled(struct gh_offload *o, const struct gh_instance *i,
                             gh_error *err)
{
    const struct gh_ring_buffer *oldest =
        gh_ring_before(&i->size_class->out, i->out, o->options.in_flight);
    gh_status status =
        gh_device_event_record(o->dev, i->out->filled, i->stream, err);

    if (status == GH_OK && oldest != NULL) {
        status = gh_device_event_wait(o->dev, i->stream, oldest->read, err);
    }
    return status;
}

gh_status gh_offload_commit_eager(struct gh_offload *o,
                                  const struct gh_offload_at *at,
                                  gh_offload_group *wanted, gh_error *err)
{
    struct gh_instance *i;
    gh_status status =
        gh_group_saved(o, at, wanted->layer, wanted->module, &i, err);

    if (status != GH_OK) {
        return status;
    }
    if (i->state != GH_INSTANCE_WRITING) {
        return gh_group_refuse(o, i, "gh_offload_commit", err);
    }
    if (gh_instance_is_host_owned(i) && i->pass != at->pass) {
        return gh_host_owned_refuse_pass(o, i, err);
    }
    if (!i->group->placed && !at->forward_only && !at->paused) {
        i->group->placed = true;
        i->group->commit_order = o->n_committed++;
    }
    i->stream = at->stream;
    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_COMMIT, i, i->stream);
    }
    if (i->for_nobody) {
        end_for_nobody(o, i);
        return GH_OK;
    }
    if (gh_instance_is_host_owned(i)) {
        status = commit_host_owned(o, i, err);
    }
    if (status == GH_OK && i->out != NULL) {
        status = mark_filled(o, i, err);
    }
    if (status != GH_OK || i->goes) {
        return status == GH_OK ? gh_move_out(o, i, at->compares, err) : status;
    }
    gh_move_link(o, i);
    i->state = GH_INSTANCE_AWAY;
    return GH_OK;
}
