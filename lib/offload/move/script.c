/*
 * script.c - a pass that is recorded: event nodes in its graph, and the steps
 * of its script, which launch.c follows around every launch.
 *
 * The groups of a recorded pass have their buffers by their index, and the
 * nodes refer to the events of those.  Nothing changes while the pass is
 * recorded: its first launch is the first time that it runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/calls.h"

#include "base/error.h"
#include "offload/groups/group.h"
#include "offload/groups/host_owned.h"
#include "offload/move/move.h"
#include "offload/move/recorded_host_owned.h"
#include "offload/move/script.h"

#include <stdlib.h>

/* ---- what a step may be -------------------------------------------------- */

/* Gives the step runs of its own.  Those of the instance are of its last
 * flight, which may have been smaller. */
static gh_status keep_runs(const struct gh_offload *o,
                           const gh_offload_group *wanted,
                           struct gh_offload_step *step, gh_error *err)
{
    step->runs = malloc(GH_MAX_GROUP * sizeof(*step->runs));
    if (step->runs == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a recording");
    }
    step->n_runs =
        step->host_memory != NULL
            ? gh_host_owned_find_runs(step->host_memory, false, step->runs)
            : gh_group_find_runs(o, wanted, step->runs);
    return GH_OK;
}

static const char *const calls[] = {
    [GH_OFFLOAD_SAVE] = "gh_offload_save",
    [GH_OFFLOAD_COMMIT] = "gh_offload_commit",
    [GH_OFFLOAD_LOAD] = "gh_offload_load",
    [GH_OFFLOAD_RELEASE] = "gh_offload_release",
};

/* Whether this recording or an earlier pass has brought the group to where the
 * call finds it, as the same call of an eager pass asks.  The launch comes
 * right after the recording, so that all is as it will be then. */
static bool is_in_turn(const struct gh_offload_step *step,
                       const struct gh_offload_at *at)
{
    const struct gh_instance *i = step->instance;

    if (step->verb == GH_OFFLOAD_SAVE) {
        return !gh_instance_is_live(i);
    }
    if (step->verb == GH_OFFLOAD_LOAD) {
        return gh_instance_is_committed(i) && i->microbatch == at->microbatch;
    }
    return !step->alone || gh_script_is_begun(i, step->verb, at);
}

static gh_status check_turn(const struct gh_offload *o,
                            const struct gh_offload_at *at,
                            const struct gh_offload_script *script,
                            const struct gh_offload_step *step, gh_error *err)
{
    const struct gh_group *group = step->instance->group;

    for (uint32_t s = 0; s < script->n; s++) {
        if (script->steps[s].verb == step->verb &&
            script->steps[s].instance == step->instance) {
            return gh_fail(err, GH_ERR_STATE, "%s: %s twice in one recording",
                           calls[step->verb],
                           gh_group_name(o, group->layer, group->module).text);
        }
    }
    /* What a pass prepares is launched later. */
    return at->prepares || is_in_turn(step, at)
               ? GH_OK
               : gh_group_refuse(o, step->instance, calls[step->verb], err);
}

/* One graph cannot use a buffer for two groups: the second would wait for a
 * copy that is issued only after the launch. */
static gh_status check_buffer(const struct gh_offload *o,
                              const struct gh_offload_script *script,
                              const struct gh_instance *i,
                              const struct gh_ring_buffer *buffer,
                              gh_error *err)
{
    for (uint32_t s = 0; s < script->n; s++) {
        if (script->steps[s].buffer == buffer) {
            const struct gh_group *other = script->steps[s].instance->group;

            return gh_fail(
                err, GH_ERR_STATE,
                "offload: %s and %s have one buffer, and one graph cannot use "
                "it twice",
                gh_group_name(o, i->group->layer, i->group->module).text,
                gh_group_name(o, other->layer, other->module).text);
        }
    }
    return GH_OK;
}

static gh_status check_fits(const struct gh_offload *o,
                            const struct gh_group *group,
                            const struct gh_split *split, gh_error *err)
{
    if (!o->profiled || group->fate != GH_FATE_GOES ||
        split->goes <= group->size_class->bytes) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "offload: %s has %llu bytes, and had %llu in the first "
                   "step: what is recorded has the same size in every step",
                   gh_group_name(o, group->layer, group->module).text,
                   (unsigned long long)split->goes,
                   (unsigned long long)group->size_class->bytes);
}

/* Whether graphs of the instance have it in the rings.  The first one decides
 * that: without pinned memory for one more flight it stays, and the graph
 * replays all the same. */
static bool is_ringed(struct gh_offload *o,
                      const struct gh_offload_script *script,
                      struct gh_instance *i)
{
    const uint64_t bytes = i->group->size_class->bytes;
    uint32_t n = 1;
    gh_error why;

    for (uint32_t s = 0; s < script->n && !i->ringed; s++) {
        const struct gh_offload_step *step = &script->steps[s];

        n += step->verb == GH_OFFLOAD_SAVE && step->buffer != NULL &&
             step->instance->group->size_class->bytes == bytes;
    }
    if (!i->ringed && !i->unpinned) {
        i->unpinned = gh_pinned_ask(&o->pinned, bytes, n, &why) != GH_OK;
        i->ringed = !i->unpinned;
        if (i->unpinned) {
            gh_group_say_pool(o, &why);
        }
    }
    return i->ringed;
}

gh_status gh_offload_save_recorded(struct gh_offload *o,
                                   const struct gh_offload_at *at,
                                   gh_offload_group *wanted,
                                   struct gh_offload_script *script,
                                   gh_error *err)
{
    struct gh_offload_step step = { .verb = GH_OFFLOAD_SAVE };
    struct gh_size_class *size_class = NULL;
    struct gh_group *group;
    struct gh_split split, parts;
    gh_status status = gh_group_meet(o, at, wanted, &group, &split, err);

    if (status == GH_OK) {
        status = gh_group_find_class(o, at, group, &split, &size_class, err);
    }
    if (status == GH_OK) {
        status = check_fits(o, group, &split, err);
    }
    if (status == GH_OK) {
        status = gh_table_instance(&o->table, group, at->slot, at->microbatch,
                                   &step.instance, err);
    }
    if (status == GH_OK) {
        status = check_turn(o, at, script, &step, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (o->profiled && group->fate == GH_FATE_GOES && split.goes != 0 &&
        is_ringed(o, script, step.instance)) {
        step.buffer =
            gh_ring_buffer_of(&group->size_class->out, group, at->slot);
        step.goes = split.goes;
        status = check_buffer(o, script, step.instance, step.buffer, err);
        if (status == GH_OK) {
            status = gh_device_event_wait_in_graph(o->dev, at->stream,
                                                   step.buffer->read, err);
        }
    }
    parts = gh_group_split(o, wanted, step.buffer != NULL);
    step.stays = parts.stays;
    step.layout = parts.layout;
    if (status == GH_OK && gh_is_host_owned(wanted)) {
        status = gh_host_owned_record_save(o, wanted, &step, err);
    }
    if (status == GH_OK) {
        status = gh_group_keep_for_graph(o, step.instance, step.stays, err);
    }
    if (status == GH_OK && step.buffer != NULL) {
        status = keep_runs(o, wanted, &step, err);
    }
    if (status != GH_OK) {
        gh_offload_step_free(&step);
        return status;
    }
    status = gh_offload_script_add(script, step, err);
    if (status != GH_OK) {
        return status;
    }
    gh_group_learn(o, at, group, &split, size_class);
    if (step.host_memory != NULL) {
        step.instance->recorded |= step.stays != 0;
        return gh_host_owned_record_lend(o, at, wanted, &step, err);
    }
    step.instance->recorded = true;
    gh_group_lay_out(o, wanted, step.buffer != NULL,
                     step.buffer != NULL ? step.buffer->address : NULL,
                     step.instance->kept);
    return GH_OK;
}

/* The buffer that graphs of this slot use for the group.  NULL: it has none. */
static struct gh_ring_buffer *buffer_of(struct gh_ring *ring,
                                        const struct gh_instance *i,
                                        const struct gh_offload_at *at)
{
    return i->group->fate == GH_FATE_GOES && !i->unpinned &&
                   ring->n_indexed != 0
               ? gh_ring_buffer_of(ring, i->group, at->slot)
               : NULL;
}

/* Whether another pass has begun what the graph ends. */
static bool is_alone(const struct gh_offload_script *script,
                     const struct gh_instance *i, enum gh_offload_verb begin)
{
    for (uint32_t s = 0; s < script->n; s++) {
        if (script->steps[s].instance == i && script->steps[s].verb == begin) {
            return false;
        }
    }
    return true;
}

/* Finds the buffer of the group that the graph ends.  If an eager pass has
 * begun it, that is the buffer which this pass has chosen, and else that of
 * the group's index.  Before the profile is decided on, no group has an index
 * in a ring. */
static gh_status find_end(const struct gh_offload *o,
                          const struct gh_offload_at *at,
                          struct gh_offload_step *step, gh_error *err)
{
    const bool commits = step->verb == GH_OFFLOAD_COMMIT;
    const struct gh_instance *i = step->instance;
    struct gh_size_class *size_class = i->group->size_class;

    if (step->alone && gh_script_is_begun(i, step->verb, at)) {
        step->buffer = commits ? i->out : i->back;
        return !gh_script_is_temporary(i) &&
                       (o->profiled || step->buffer == NULL)
                   ? GH_OK
                   : gh_fail(err, GH_RERUN,
                             "offload: an eager pass has %s where it is this "
                             "time only, so that no graph can end it",
                             gh_group_name(o, i->group->layer, i->group->module)
                                 .text);
    }
    if (size_class != NULL) {
        step->buffer =
            buffer_of(commits ? &size_class->out : &size_class->back, i, at);
    }
    return GH_OK;
}

/* A commit or a release: records that the group's buffer is filled, or read. */
static gh_status record_end(struct gh_offload *o,
                            const struct gh_offload_at *at,
                            enum gh_offload_verb verb,
                            const gh_offload_group *wanted,
                            struct gh_offload_script *script, gh_error *err)
{
    const bool commits = verb == GH_OFFLOAD_COMMIT;
    struct gh_offload_step step = { .verb = verb };
    const struct gh_ring_buffer *oldest = NULL;
    gh_status status = gh_group_saved(o, at, wanted->layer, wanted->module,
                                      &step.instance, err);

    if (status == GH_OK) {
        step.alone = is_alone(script, step.instance,
                              commits ? GH_OFFLOAD_SAVE : GH_OFFLOAD_LOAD);
        status = check_turn(o, at, script, &step, err);
    }
    if (status != GH_OK) {
        return status;
    }
    step.layout = step.instance->layout;
    if (commits && step.alone && gh_instance_is_host_owned(step.instance)) {
        return gh_host_owned_refuse_pass(o, step.instance, err);
    }
    status = find_end(o, at, &step, err);
    if (status == GH_OK && commits) {
        status = gh_host_owned_record_commit(o, at, script, &step, err);
    }
    if (status == GH_OK && step.buffer != NULL) {
        if (!commits && !o->checks && gh_instance_is_live(step.instance)) {
            gh_device_discard(o->dev, step.buffer->address,
                              step.instance->bytes, at->stream, NULL);
        }
        status = gh_device_event_record_in_graph(
            o->dev, commits ? step.buffer->filled : step.buffer->read,
            at->stream, err);
        oldest = commits
                     ? gh_ring_before(&step.instance->group->size_class->out,
                                      step.buffer, o->options.in_flight)
                     : NULL;
    }
    if (status == GH_OK && oldest != NULL) {
        status = gh_device_event_wait_in_graph(o->dev, at->stream, oldest->read,
                                               err);
    }
    step.instance->recorded |= step.alone && step.instance->stays != 0;
    return status == GH_OK ? gh_offload_script_add(script, step, err) : status;
}

gh_status gh_offload_commit_recorded(struct gh_offload *o,
                                     const struct gh_offload_at *at,
                                     gh_offload_group *wanted,
                                     struct gh_offload_script *script,
                                     gh_error *err)
{
    return record_end(o, at, GH_OFFLOAD_COMMIT, wanted, script, err);
}

gh_status gh_offload_release_recorded(struct gh_offload *o,
                                      const struct gh_offload_at *at,
                                      gh_offload_group *wanted,
                                      struct gh_offload_script *script,
                                      gh_error *err)
{
    return record_end(o, at, GH_OFFLOAD_RELEASE, wanted, script, err);
}

/* Settles where the graph reads a group that lies in the library's memory. */
static gh_status find_given(struct gh_offload *o,
                            const gh_offload_group *wanted,
                            struct gh_offload_step *step, gh_error *err)
{
    const struct gh_instance *i = step->instance;
    const struct gh_split split =
        gh_group_split(o, wanted, step->buffer != NULL);

    step->stays = split.stays;
    step->layout = split.layout;
    if (gh_instance_is_live(i) && split.layout != i->layout) {
        return gh_group_refuse_tensors(o, i, wanted, err);
    }
    if (split.stays > i->kept_bytes) {
        const bool smaller = i->recorded && split.stays == i->stays;

        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_load: %s has %llu bytes that stay, and "
                       "%sroom for %llu: %s",
                       gh_group_name(o, wanted->layer, wanted->module).text,
                       (unsigned long long)split.stays,
                       smaller ? "a graph of a smaller bank has " : "",
                       (unsigned long long)i->kept_bytes,
                       smaller ? "use the largest bank in a warmup step"
                               : "load the tensors that were saved");
    }
    return step->buffer != NULL ? check_fits(o, i->group, &split, err) : GH_OK;
}

static void lay_out(const struct gh_offload *o,
                    const struct gh_offload_step *step,
                    gh_offload_group *wanted)
{
    void *moved = step->buffer != NULL ? step->buffer->address : NULL;

    if (step->host_memory == NULL) {
        gh_group_lay_out(o, wanted, moved != NULL, moved, step->instance->kept);
    } else {
        gh_host_owned_lay_out(step->host_memory, wanted, moved,
                              step->instance->kept);
    }
}

gh_status gh_offload_load_recorded(struct gh_offload *o,
                                   const struct gh_offload_at *at,
                                   gh_offload_group *wanted,
                                   struct gh_offload_script *script,
                                   gh_error *err)
{
    struct gh_offload_step step = { .verb = GH_OFFLOAD_LOAD };
    struct gh_instance *i;
    gh_status status =
        gh_group_saved(o, at, wanted->layer, wanted->module, &i, err);

    if (status == GH_OK) {
        step.instance = i;
        status = check_turn(o, at, script, &step, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (i->group->size_class != NULL) {
        step.buffer = buffer_of(&i->group->size_class->back, i, at);
    }
    status = gh_instance_is_host_owned(i)
                 ? gh_host_owned_record_load(o, wanted, &step, err)
                 : find_given(o, wanted, &step, err);
    if (status == GH_OK && step.buffer != NULL) {
        status = check_buffer(o, script, i, step.buffer, err);
        if (status == GH_OK) {
            status = gh_device_event_wait_in_graph(o->dev, at->stream,
                                                   step.buffer->filled, err);
        }
    }
    if (status != GH_OK) {
        gh_offload_step_free(&step);
        return status;
    }
    status = gh_offload_script_add(script, step, err);
    if (status != GH_OK) {
        return status;
    }
    i->recorded |= step.host_memory == NULL || step.stays != 0;
    lay_out(o, &step, wanted);
    return GH_OK;
}
