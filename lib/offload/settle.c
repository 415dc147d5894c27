/*
 * settle.c - see settle.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/settle.h"

#include "offload/policy.h"

#include <stdio.h>
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct gh_group *one = *(struct gh_group *const *)a;
    const struct gh_group *other = *(struct gh_group *const *)b;

    if (one->placed != other->placed) {
        return one->placed ? -1 : 1;
    }
    return (one->place > other->place) - (one->place < other->place);
}

/* The most microbatches that had one group at once. */
static uint32_t count_in_flight(const struct gh_offload *o)
{
    uint32_t most = 1;

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];
        uint32_t n = 0;

        for (uint32_t i = 0; i < o->table.max_slots; i++) {
            n += group->of_slot[i].used;
        }
        for (const struct gh_instance *i = group->loose; i != NULL;
             i = i->next) {
            n += i->used;
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Groups of a class take its buffers in turn, in the order of their commits. */
static void give_places(struct gh_offload *o)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate == GH_FATE_GOES) {
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
                           uint32_t n, gh_error *err)
{
    gh_status status = size_ring(o, &c->out, n, err);

    if (status == GH_OK) {
        status = size_ring(o, &c->back, n, err);
    }
    if (status == GH_OK) {
        c->out.places = c->back.places = n;
    }
    return status;
}

/* Without their rings, the groups of a class stay. */
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

/* The first failure is told; the other classes go all the same. */
static gh_status size_rings(struct gh_offload *o,
                            const struct gh_policy *policy, gh_error *err)
{
    gh_status first = GH_OK;

    for (uint32_t i = 0; i < o->table.n_classes; i++) {
        struct gh_size_class *c = o->table.classes[i];
        const uint32_t n =
            c->n_groups == 0 ? 0 : gh_policy_places(policy, c);
        gh_status status = size_both(o, c, n, first == GH_OK ? err : NULL);

        if (status != GH_OK) {
            keep_class(o, c);
            first = first == GH_OK ? status : first;
        }
    }
    return first;
}

/* A group that only evaluations or a host's own warmup have saved. */
static void keep_unplaced(struct gh_offload *o)
{
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        struct gh_group *group = o->table.groups[g];

        if (group->fate == GH_FATE_GOES && !group->placed) {
            group->fate = GH_FATE_NEW;
        }
    }
}

/* The copies of the profile use the buffers that are freed now.  cuMemFree
 * waits for them; a host's need not. */
static gh_status wait_for_copies(struct gh_offload *o, gh_error *err)
{
    gh_status status;

    if (o->memory->host->device_free == NULL) {
        return GH_OK;
    }
    status = gh_device_stream_wait(o->dev, o->out, err);
    return status == GH_OK ? gh_device_stream_wait(o->dev, o->back, err)
                           : status;
}

/* ---- the table that a person reads ---------------------------------------------- */

static const char *const fate_texts[GH_FATES] = {
    [GH_FATE_GOES] = "go",
    [GH_FATE_NOT_ASKED] = "not asked for",
    [GH_FATE_PLAN] = "switched off by the plan",
    [GH_FATE_SMALL] = "smaller than the least size",
    [GH_FATE_MARGIN] = "needed at once by the backward",
    [GH_FATE_KEEP] = "within keep_bytes",
    [GH_FATE_FRACTION] = "beyond the fraction",
    [GH_FATE_NO_GAIN] = "no fewer than their rings would hold",
    [GH_FATE_NEW] = "not there in the first step",
    [GH_FATE_NO_MEMORY] = "no memory for their rings",
};

static void say_module(const struct gh_offload *o, uint32_t module,
                       uint32_t in_flight)
{
    uint32_t n[GH_FATES] = { 0 }, all = 0;
    uint64_t without = 0, rings = 0;
    char stay[160] = "";
    size_t used = 0;
    const char *name = NULL;
    struct gh_group_name text = { "" };

    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const struct gh_group *group = o->table.groups[g];

        if (group->module != module) {
            continue;
        }
        all++;
        n[group->fate]++;
        text = gh_group_name(o, group->layer, module);
        if (group->fate == GH_FATE_GOES) {
            without += group->bytes * in_flight;
        }
    }
    for (uint32_t i = 0; i < o->table.n_classes; i++) {
        const struct gh_size_class *c = o->table.classes[i];

        if (c->module == module) {
            rings += c->bytes * (c->out.n + (uint64_t)c->back.n);
        }
    }
    for (int fate = 1; fate < GH_FATES && used < sizeof(stay); fate++) {
        if (n[fate] != 0) {
            used += (size_t)snprintf(stay + used, sizeof(stay) - used,
                                     "; %u stay (%s)", n[fate],
                                     fate_texts[fate]);
        }
    }
    for (name = text.text; *name != '\0' && *name != ','; name++) {
    }
    gh_log_line(o->log, GH_LOG_INFO,
                "offload%s: %u of %u groups go; %.1f MiB on the device in the "
                "place of %.1f, with %u microbatches in flight%s",
                name, n[GH_FATE_GOES], all, (double)rings / 1048576.0,
                (double)without / 1048576.0, in_flight, stay);
}

static void say(const struct gh_offload *o, uint32_t in_flight)
{
    if (o->log->level < GH_LOG_INFO) {
        return;
    }
    for (uint32_t g = 0; g < o->table.n_groups; g++) {
        const uint32_t module = o->table.groups[g]->module;
        bool said = o->table.groups[g]->fate == GH_FATE_NOT_ASKED;

        for (uint32_t before = 0; before < g && !said; before++) {
            said = o->table.groups[before]->module == module;
        }
        if (!said) {
            say_module(o, module, in_flight);
        }
    }
}

gh_status gh_settle(struct gh_offload *o, gh_error *err)
{
    const struct gh_policy policy = {
        .fraction = o->options.fraction,
        .keep_bytes = o->options.keep_bytes,
        .buffers = o->options.buffers,
        .in_flight = count_in_flight(o),
    };
    gh_status status = wait_for_copies(o, err);

    if (status != GH_OK) {
        return status;
    }
    if (o->table.n_groups > 1) {
        qsort(o->table.groups, o->table.n_groups, sizeof(*o->table.groups),
              by_place);
    }
    keep_unplaced(o);
    gh_policy_settle(&policy, o->table.groups, o->table.n_groups);
    give_places(o);
    status = size_rings(o, &policy, err);
    o->profiled = true;
    if (status == GH_OK) {
        say(o, policy.in_flight);
    }
    return status;
}
