/*
 * decide.c - see decide.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/decide.h"

#include "base/error.h"
#include "offload/decide/exchanges.h"
#include "offload/decide/measure.h"
#include "offload/decide/report.h"

#include <stdlib.h>

/* What has no place comes last. */
static uint64_t place_of(const void *group_p)
{
    const struct gh_group *group = *(struct gh_group *const *)group_p;

    return group->placed ? group->commit_order : UINT64_MAX;
}

static int by_commit(const void *a, const void *b)
{
    const uint64_t one = place_of(a), other = place_of(b);

    return (one > other) - (one < other);
}

/* The most microbatches that had one group at once. */
static uint32_t count_in_flight(const struct gh_offload *o)
{
    uint32_t most = o->in_flight != 0 ? o->in_flight : 1;

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];
        uint32_t n = 0;

        for (uint32_t i = 0; i < o->table.max_slots; i++) {
            n += group->of_slot[i].used;
        }
        for (const struct gh_instance *i = group->slotless; i != NULL;
             i = i->next) {
            n += i->used;
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Groups of a class take its buffers in turn, in the order of their commits. */
static void index_rings(struct gh_offload *o)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate == GH_FATE_GOES && group->elsewhere) {
            group->fate = GH_FATE_ELSEWHERE;
        } else if (group->fate == GH_FATE_GOES) {
            group->ordinal = group->size_class->n_groups++;
        }
    }
}

static gh_status size_ring(struct gh_offload *o, struct gh_ring *ring,
                           uint32_t n, gh_error *err)
{
    gh_ring_shrink(ring, n, o->memory);
    return gh_ring_grow(ring, n, o->memory, err);
}

static gh_status size_both(struct gh_offload *o, struct gh_size_class *c,
                           uint32_t out, uint32_t back, gh_error *err)
{
    gh_status status = size_ring(o, &c->out, out, err);

    if (status == GH_OK) {
        status = size_ring(o, &c->back, back, err);
    }
    if (status == GH_OK) {
        c->out.n_indexed = out;
        c->back.n_indexed = back;
    }
    return status;
}

/* The rings could not be made: the groups of the class stay. */
static void keep_class(struct gh_offload *o, struct gh_size_class *c)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate == GH_FATE_GOES && group->size_class == c) {
            group->fate = GH_FATE_NO_MEMORY;
        }
    }
    c->n_groups = 0;
    gh_ring_shrink(&c->out, 0, o->memory);
    gh_ring_shrink(&c->back, 0, o->memory);
}

/* Returns the first failure.  The other classes go all the same. */
static gh_status size_rings(struct gh_offload *o,
                            const struct gh_policy *policy,
                            const struct gh_policy_class *decided,
                            gh_error *err)
{
    gh_status first = GH_OK;

    for (uint32_t i = 0; i < o->table.n_classes; i++) {
        struct gh_size_class *c = o->table.classes[i];
        const bool used = c->n_groups != 0;
        gh_status status = size_both(
            o, c, used ? gh_policy_ring_buffers_out(policy, &decided[i]) : 0,
            used ? gh_policy_ring_buffers(policy, &decided[i]) : 0,
            first == GH_OK ? err : NULL);

        if (status != GH_OK) {
            keep_class(o, c);
            first = first == GH_OK ? status : first;
        }
    }
    return first;
}

/* Keeps groups that only evaluations, or a host's own warmup, have saved. */
static void keep_unplaced(struct gh_offload *o)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate == GH_FATE_GOES && !group->placed) {
            group->fate = GH_FATE_NEW;
        }
    }
}

/* Gives back the pinned memory that the decision has no use for, unless a rank
 * may be waiting for this one. */
static void trim_pinned(struct gh_offload *o, uint32_t in_flight)
{
    if (gh_memory_holds(o->memory)) {
        return;
    }
    for (const struct gh_pinned_size *size = o->pinned.sizes; size != NULL;
         size = size->next) {
        uint64_t used = 0;

        for (uint32_t c = 0; c < o->table.n_classes; c++) {
            const struct gh_size_class *k = o->table.classes[c];

            used +=
                k->bytes == size->bytes ? (uint64_t)k->n_groups * in_flight : 0;
        }
        gh_pinned_trim(&o->pinned, size->bytes, used);
    }
}

static void free_kept(struct gh_offload *o, struct gh_instance *i)
{
    if (!i->recorded) {
        gh_memory_free(o->memory, i->kept, i->kept_bytes);
        gh_memory_free(o->memory, i->wider, i->wider_bytes);
        i->kept = i->wider = i->held = NULL;
        i->kept_bytes = i->wider_bytes = 0;
    }
}

/* Gives back the device memory in which groups that go have stayed during the
 * profile, as they found no pinned memory. */
static void free_what_stayed(struct gh_offload *o)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate != GH_FATE_GOES) {
            continue;
        }
        for (uint32_t i = 0; i < o->table.max_slots; i++) {
            free_kept(o, &group->of_slot[i]);
        }
        for (struct gh_instance *i = group->slotless; i != NULL; i = i->next) {
            free_kept(o, i);
        }
    }
}

/* As the policy is told it. */
static uint64_t room_of(const struct gh_pinned *pinned)
{
    const uint64_t room = gh_pinned_room(pinned);

    return room == UINT64_MAX ? 0 : room + (room == 0);
}

/* The copies of the profile use the buffers that are freed now.  cuMemFree
 * would wait for them, but memory that is held, or goes to the host, need
 * not. */
static gh_status wait_for_copies(struct gh_offload *o, gh_error *err)
{
    const gh_status status = gh_device_stream_wait(o->dev, o->out, err);

    return status == GH_OK ? gh_device_stream_wait(o->dev, o->back, err)
                           : status;
}

/* ---- what the policy is asked ----------------------------------------- */

/* The profile as the policy reads it; what it points to is here. */
struct question {
    struct gh_profile profile;
    struct gh_policy_group *groups;
    struct gh_policy_class *classes;
    struct gh_mark *marks; /* NULL: nothing was measured */
};

static void free_question(struct question *q)
{
    free(q->groups);
    free(q->classes);
    free(q->marks);
}

static uint32_t class_at(const struct gh_offload *o,
                         const struct gh_size_class *size_class)
{
    uint32_t c = 0;

    while (c < o->table.n_classes && o->table.classes[c] != size_class) {
        c++;
    }
    return c;
}

static gh_status ask(const struct gh_offload *o, struct question *q,
                     gh_error *err)
{
    const struct gh_table *t = &o->table;

    *q = (struct question){
        .groups = calloc(t->n_groups + (size_t)1, sizeof(*q->groups)),
        .classes = calloc(t->n_classes + (size_t)1, sizeof(*q->classes)),
    };
    if (q->groups == NULL || q->classes == NULL) {
        free_question(q);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a profile");
    }
    for (uint32_t c = 0; c < t->n_classes; c++) {
        q->classes[c].bytes = t->classes[c]->bytes;
        q->classes[c].in_pass = t->classes[c]->in_pass;
    }
    for (uint32_t g = 0; g < t->n_groups; g++) {
        const struct gh_group *group = t->groups[g];

        q->groups[g] = (struct gh_policy_group){
            .layer = group->layer,
            .module = group->module,
            .chunk = group->chunk,
            .size_class = class_at(o, group->size_class),
            .bytes = group->bytes,
            .late = group->late,
            .elsewhere = group->elsewhere,
            .fate = group->fate,
            .gap_ns = group->gap_ns,
        };
    }
    q->profile = (struct gh_profile){
        .groups = q->groups,
        .n_groups = t->n_groups,
        .classes = q->classes,
        .n_classes = t->n_classes,
        .out_rate = o->options.link_rate,
        .back_rate = o->options.link_rate,
        .slowdown = -1.0,
    };
    return GH_OK;
}

/* The groups are in the order of their commits. */
static gh_status decide(struct gh_offload *o, const struct gh_policy *policy,
                        struct question *q, gh_error *err)
{
    gh_status status;

    if (!gh_measure_read(o, &q->profile, &q->marks) && o->measure != NULL) {
        gh_log_line(o->log, GH_LOG_WARN,
                    "offload: the step could not be timed: all groups go that "
                    "would with a fraction of 1");
    }
    if (gh_measure_was_idle(o)) {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: the device has waited for the host in the step "
                    "that was measured: replays leave less time for copies "
                    "than it had, and more of them may be waited for");
    }
    gh_exchanges_decide(o, q->groups, q->profile.n_groups);
    status = gh_policy_decide(policy, &q->profile, &o->forecast, err);
    for (uint32_t g = 0; status == GH_OK && g < o->table.n_groups; g++) {
        o->table.groups[g]->fate = q->groups[g].fate;
        o->table.groups[g]->gap_ns = q->groups[g].gap_ns;
    }
    return status;
}

gh_status gh_offload_decide(struct gh_offload *o, gh_error *err)
{
    const struct gh_policy policy = {
        .fraction = o->options.fraction,
        .hides = o->options.hides,
        .keep_bytes = o->options.keep_bytes,
        .pool_bytes = room_of(&o->pinned),
        .buffers = o->options.buffers,
        .in_flight = count_in_flight(o),
        .prefetch = o->options.prefetch,
        .most_out = o->options.in_flight,
    };
    struct question q;
    gh_status status = wait_for_copies(o, err);

    if (status != GH_OK) {
        return status;
    }
    if (o->table.n_groups > 1) {
        qsort(o->table.groups, o->table.n_groups, sizeof(*o->table.groups),
              by_commit);
    }
    keep_unplaced(o);
    status = ask(o, &q, err);
    if (status != GH_OK) {
        return status;
    }
    status = decide(o, &policy, &q, err);
    gh_measure_free(o);
    gh_exchanges_free(o);
    if (status == GH_OK) {
        index_rings(o);
        status = size_rings(o, &policy, q.classes, err);
        trim_pinned(o, policy.in_flight);
        free_what_stayed(o);
        o->profiled = true;
        gh_report_decision(o, &policy, &q.profile);
    }
    free_question(&q);
    return status;
}
