/*
 * launch.c - what the library does around every launch of a recorded pass,
 * instead of the host.
 *
 * script.c has written the steps down.  The graph knows the buffers of its
 * groups: if one of them is elsewhere this time, the graph is not launched.
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
#include "offload/move/script.h"

#include <string.h>

static gh_status begin_save(struct gh_offload *o,
                            const struct gh_offload_step *step,
                            const struct gh_offload_at *at, gh_error *err)
{
    struct gh_instance *i = step->instance;
    gh_status status = GH_OK;

    if (gh_instance_is_live(i)) {
        return gh_group_refuse(o, i, "gh_layer_enter", err);
    }
    i->used = true;
    i->size_class = i->group->size_class;
    i->microbatch = at->microbatch;
    i->stream = at->stream;
    i->for_nobody = false;
    i->pass = at->pass;
    i->goes = false;
    i->out = i->back = NULL;
    i->held = i->kept;
    i->stays = step->stays;
    i->layout = step->layout;
    gh_host_owned_forget(i);
    if (step->host_memory != NULL) {
        gh_host_owned_copy(i->host_memory, step->host_memory);
    }
    if (step->buffer != NULL) {
        i->n_runs = step->n_runs;
        memcpy(i->runs, step->runs, step->n_runs * sizeof(*i->runs));
        status = gh_move_begin(o, i, step->buffer, step->goes, err);
    }
    if (status == GH_OK) {
        i->state = GH_INSTANCE_WRITING;
    }
    return status;
}

/* The error for a group that is elsewhere than where the graph reads or writes
 * it. */
static gh_status refuse_address(const struct gh_offload *o,
                                const struct gh_instance *i, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "offload: %s has another place or other bytes in this "
                   "microbatch than the graph was recorded with",
                   gh_group_name(o, i->group->layer, i->group->module).text);
}

static gh_status check_begun(const struct gh_offload *o,
                             const struct gh_offload_step *step,
                             const struct gh_offload_at *at, gh_error *err)
{
    const struct gh_instance *i = step->instance;
    const bool commits = step->verb == GH_OFFLOAD_COMMIT;

    if (!gh_script_is_begun(i, step->verb, at)) {
        return gh_group_refuse(o, i, "gh_layer_enter", err);
    }
    if ((commits ? i->out : i->back) != step->buffer ||
        gh_script_is_temporary(i) || i->layout != step->layout ||
        (commits && gh_instance_is_host_owned(i))) {
        return refuse_address(o, i, err);
    }
    return GH_OK;
}

static gh_status begin_load(struct gh_offload *o,
                            const struct gh_offload_step *step,
                            const struct gh_offload_at *at, gh_error *err)
{
    struct gh_instance *i = step->instance;
    gh_status status = GH_OK;

    if (i->microbatch != at->microbatch ||
        (i->state != GH_INSTANCE_AWAY && i->state != GH_INSTANCE_BACK)) {
        return gh_group_refuse(o, i, "gh_layer_enter", err);
    }
    if (i->goes != (step->buffer != NULL) || i->layout != step->layout ||
        gh_instance_is_host_owned(i) != (step->host_memory != NULL) ||
        (step->host_memory == NULL && gh_script_holds_other(i, step->stays))) {
        return refuse_address(o, i, err);
    }
    i->pass = at->pass;
    i->stream = at->stream;
    i->said = false;
    if (step->host_memory != NULL) {
        status = gh_host_owned_bring(o, i, step->host_memory, at->stream, err);
    }
    return status == GH_OK && i->goes
               ? gh_move_back(o, i, step->buffer, false, err)
               : status;
}

static void take_back(struct gh_offload *o,
                      const struct gh_offload_script *script, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++) {
        if (script->steps[s].verb == GH_OFFLOAD_SAVE) {
            gh_move_abandon(o, script->steps[s].instance);
        }
    }
}

/* Notes that the graph waits for the last copy from the buffer, or into it. */
static void measure_wait(struct gh_offload *o,
                         const struct gh_offload_step *step)
{
    if (gh_is_measured(o) && step->buffer != NULL) {
        gh_measure_wait(o, step->buffer, step->instance->group,
                        step->verb == GH_OFFLOAD_SAVE);
    }
}

gh_status gh_offload_before(struct gh_offload *o,
                            const struct gh_offload_script *script,
                            const struct gh_offload_at *at, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(o->dev);
    gh_status status = GH_OK;

    if (gh_is_measured(o)) {
        gh_measure_point(o, GH_POINT_LAUNCH, NULL, at->stream);
    }
    for (uint32_t s = 0; s < script->n && status == GH_OK; s++) {
        const struct gh_offload_step *step = &script->steps[s];

        if (step->verb == GH_OFFLOAD_SAVE) {
            measure_wait(o, step);
            status = begin_save(o, step, at, err);
        } else if (step->verb == GH_OFFLOAD_LOAD) {
            status = begin_load(o, step, at, err);
            measure_wait(o, step);
        } else if (step->alone) {
            status = check_begun(o, step, at, err);
        }
        if (status != GH_OK) {
            take_back(o, script, s);
        }
    }
    gh_device_leave(o->dev, before);
    return status;
}

void gh_offload_take_back(struct gh_offload *o,
                          const struct gh_offload_script *script)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    take_back(o, script, script->n);
    gh_device_leave(o->dev, before);
}

static void commit(struct gh_offload *o, struct gh_instance *i)
{
    if (i->goes) {
        gh_move_out_or_queue(o, i);
        return;
    }
    gh_move_link(o, i);
    i->state = GH_INSTANCE_AWAY;
}

/* All releases give their buffers back before anything is copied ahead: the
 * next groups need those buffers. */
static void end_loads(struct gh_offload *o,
                      const struct gh_offload_script *script)
{
    const struct gh_instance *last = NULL;

    for (uint32_t s = 0; s < script->n; s++) {
        struct gh_instance *i = script->steps[s].instance;

        if (script->steps[s].verb == GH_OFFLOAD_LOAD) {
            last = i;
        } else if (script->steps[s].verb == GH_OFFLOAD_RELEASE) {
            gh_loans_end_instance(&o->loans, i);
            gh_move_end(o, i);
        }
    }
    if (last != NULL) {
        gh_move_prefetch(o, last);
    }
    for (uint32_t s = 0; s < script->n; s++) {
        struct gh_instance *i = script->steps[s].instance;

        if (script->steps[s].verb == GH_OFFLOAD_RELEASE) {
            gh_move_unlink(o, i);
            i->state = GH_INSTANCE_IDLE;
        }
    }
}

void gh_offload_after(struct gh_offload *o,
                      const struct gh_offload_script *script)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    for (uint32_t s = 0; s < script->n; s++) {
        struct gh_instance *i = script->steps[s].instance;

        if (script->steps[s].verb == GH_OFFLOAD_COMMIT) {
            commit(o, i);
        } else if (script->steps[s].verb == GH_OFFLOAD_LOAD) {
            i->state = GH_INSTANCE_READING;
        }
    }
    end_loads(o, script);
    gh_device_leave(o->dev, before);
}

/* ---- what is run both ways ----------------------------------------------- */

/* Whether the graph reads a group that an earlier pass, or this step, has
 * loaded. */
static bool reads_loaded(const struct gh_offload_step *step)
{
    return step->verb == GH_OFFLOAD_LOAD ||
           (step->verb == GH_OFFLOAD_RELEASE && step->alone);
}

bool gh_offload_fills_again(const struct gh_offload_script *script,
                            const gh_buffer *output)
{
    for (uint32_t s = 0; s < script->n; s++) {
        const struct gh_offload_step *step = &script->steps[s];
        const uintptr_t at = (uintptr_t)output->address;
        uintptr_t buffer;

        if (!reads_loaded(step) || step->buffer == NULL) {
            continue;
        }
        buffer = (uintptr_t)step->buffer->address;
        if (at >= buffer && at < buffer + step->instance->bytes) {
            return true;
        }
    }
    return false;
}

bool gh_offload_keeps(const struct gh_offload_step *step, gh_buffer *kept)
{
    const struct gh_instance *i = step->instance;

    if (!reads_loaded(step) || i->stays == 0 || i->held == NULL) {
        return false;
    }
    *kept = (gh_buffer){ .address = i->held, .bytes = i->stays };
    return true;
}

void gh_offload_repeat(struct gh_offload *o,
                       const struct gh_offload_script *script, void *stream)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    take_back(o, script, script->n);
    for (uint32_t s = 0; s < script->n; s++) {
        if (reads_loaded(&script->steps[s])) {
            gh_move_again(o, script->steps[s].instance, stream);
        }
    }
    gh_device_leave(o->dev, before);
}

static void spoil_ring(struct gh_offload *o, const struct gh_ring *ring,
                       void *stream)
{
    for (uint32_t b = 0; b < ring->n; b++) {
        const struct gh_ring_buffer *buffer = ring->buffers[b];

        /* A copy back that nobody has read is behind `filled` alone. */
        if (buffer->holder == NULL &&
            gh_device_event_wait(o->dev, stream, buffer->read, NULL) == GH_OK &&
            gh_device_event_wait(o->dev, stream, buffer->filled, NULL) ==
                GH_OK) {
            gh_device_spoil(o->dev, buffer->address, ring->bytes,
                            (uint8_t)(0x30 + (o->spoilt & 0xF)), stream,
                            buffer->read);
        }
    }
}

void gh_offload_spoil(struct gh_offload *o, void *stream)
{
    struct gh_device_before before = gh_device_enter(o->dev);

    o->spoilt++;
    for (uint32_t c = 0; c < o->table.n_classes; c++) {
        spoil_ring(o, &o->table.classes[c]->out, stream);
        spoil_ring(o, &o->table.classes[c]->back, stream);
    }
    gh_device_leave(o->dev, before);
}
