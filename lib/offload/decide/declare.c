/*
 * declare.c - a host says which groups there are, instead of a profile.
 *
 * What the first step would have shown is put into the table, as if each group
 * had been saved and committed once; then decide.c decides as ever.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/declare.h"

#include "base/error.h"
#include "offload/decide/decide.h"
#include "offload/groups/group.h"

/* A pass may save a group of any layer: doc/hello-offload.c saves that of the
 * next one.  So both need only exist. */
static gh_status check_layer(const struct gh_offload *o,
                             const gh_offload_declared *d, gh_error *err)
{
    if (d->segment >= o->plan->n_segments) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: segment is %u, but the plan has %u",
                       d->segment, o->plan->n_segments);
    }
    if (d->layer >= o->plan->n_layers) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: layer is %u, but the plan has %u",
                       d->layer, o->plan->n_layers);
    }
    return GH_OK;
}

/* Adds the group as if the pass of that segment had saved and committed it. */
static gh_status add(struct gh_offload *o, const gh_offload_declared *d,
                     gh_error *err)
{
    gh_offload_tensor tensor = { NULL, d->bytes };
    const gh_offload_group wanted = {
        .struct_size = sizeof(wanted),
        .layer = d->layer,
        .module = d->module,
        .n_tensors = 1,
        .tensors = &tensor,
    };
    const struct gh_offload_at at = {
        .chunk = o->plan->segments[d->segment].chunk,
        .slot = GH_SLOT_NONE,
        .pass = d->segment + UINT64_C(1), /* 0 means no pass */
    };
    struct gh_size_class *size_class;
    struct gh_group *group;
    struct gh_split split;
    gh_status status;

    if (gh_table_find(&o->table, d->layer, d->module) != NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: %s is declared twice",
                       gh_group_name(o, d->layer, d->module).text);
    }
    status = gh_group_meet(o, &at, &wanted, &group, &split, err);
    if (status == GH_OK) {
        status = gh_group_find_class(o, &at, group, &split, &size_class, err);
    }
    if (status != GH_OK) {
        return status;
    }
    gh_group_learn(o, &at, group, &split, size_class);
    group->gap_ns = d->gap_ns;
    group->elsewhere = (d->flags & GH_DECLARED_ELSEWHERE) != 0;
    group->late = (d->flags & GH_DECLARED_LATE) != 0;
    group->placed = true;
    group->commit_order = o->n_committed++;
    return GH_OK;
}

static gh_status check(const struct gh_offload *o, uint32_t in_flight,
                       gh_error *err)
{
    if (o->profiled || o->table.n_groups != 0) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_offload_declare: groups were %s already: declare "
                       "all of them once, before the first is saved",
                       o->in_flight != 0 ? "declared" : "saved");
    }
    if (in_flight == 0 || in_flight > GH_MAX_MICROBATCHES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: in_flight is %u: 1 to %u",
                       in_flight, GH_MAX_MICROBATCHES);
    }
    return GH_OK;
}

gh_status gh_offload_decide_declared(struct gh_offload *o,
                                     const gh_offload_declared *groups,
                                     uint32_t n, uint32_t in_flight,
                                     gh_error *err)
{
    struct gh_device_before before = gh_device_enter(o->dev);
    gh_status status = check(o, in_flight, err);
    const bool empty = status == GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = check_layer(o, &groups[i], err);
        if (status == GH_OK) {
            status = add(o, &groups[i], err);
        }
    }
    if (status == GH_OK) {
        o->in_flight = in_flight;
        status = gh_offload_decide(o, err);
    } else if (empty) {
        gh_table_free(&o->table);
        o->n_committed = 0;
    }
    gh_device_leave(o->dev, before);
    return status;
}

const char *gh_offload_why_stays(const struct gh_offload *o,
                                 const gh_offload_declared *d)
{
    const struct gh_group *group =
        gh_table_find(&o->table, d->layer, d->module);

    if (group == NULL) {
        return gh_fate_text(GH_FATE_NEW);
    }
    return group->fate == GH_FATE_GOES || group->fate == GH_FATE_ELSEWHERE
               ? NULL
               : gh_fate_text(group->fate);
}
