/*
 * group.c - see group.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/group.h"

#include "base/error.h"
#include "offload/groups/host_owned.h"
#include "plan/kinds.h"

#include <stdio.h>

/* ---- tensors ---------------------------------------------------------- */

bool gh_group_is_lent(const struct gh_offload *o,
                      const gh_offload_group *wanted)
{
    return o->memory->host->released != NULL && wanted->object != NULL;
}

/* Tensors of the host's own may overlap: those bytes are counted once. */
static void split_host_owned(const struct gh_offload *o,
                             const gh_offload_group *wanted, bool goes,
                             struct gh_split *split)
{
    struct gh_host_owned own;

    gh_host_owned_lay(o, wanted, goes, &own);
    split->goes = own.goes;
    split->stays = own.stays;
    split->layout ^= own.shape;
}

struct gh_split gh_group_split(const struct gh_offload *o,
                               const gh_offload_group *wanted, bool goes)
{
    struct gh_split split = { 0, 0, wanted->n_tensors };

    for (uint32_t i = 0; i < wanted->n_tensors; i++) {
        const uint64_t bytes = wanted->tensors[i].bytes;

        if (goes && gh_group_tensor_goes(o, bytes)) {
            split.goes += gh_memory_align(bytes);
        } else {
            split.stays += gh_memory_align(bytes);
        }
        split.layout = (split.layout ^ bytes) * UINT64_C(1099511628211);
    }
    if (gh_is_host_owned(wanted)) {
        split_host_owned(o, wanted, goes, &split);
    }
    return split;
}

uint32_t gh_group_find_runs(const struct gh_offload *o,
                            const gh_offload_group *wanted,
                            struct gh_run runs[GH_MAX_GROUP])
{
    uint64_t offset = 0;
    uint32_t n = 0;

    for (uint32_t t = 0; t < wanted->n_tensors; t++) {
        const uint64_t bytes = wanted->tensors[t].bytes;
        struct gh_run *last = &runs[n - (n != 0)];

        if (!gh_group_tensor_goes(o, bytes)) {
            continue;
        }
        if (n != 0 && last->offset + last->bytes == offset) {
            last->bytes += bytes;
        } else {
            runs[n++] = (struct gh_run){ offset, bytes, NULL };
        }
        offset += gh_memory_align(bytes);
    }
    return n;
}

void gh_group_lay_out(const struct gh_offload *o, gh_offload_group *wanted,
                      bool goes, void *moved, void *kept)
{
    char *next_moved = moved, *next_kept = kept;

    for (uint32_t i = 0; i < wanted->n_tensors; i++) {
        gh_offload_tensor *tensor = &wanted->tensors[i];
        char **next = goes && gh_group_tensor_goes(o, tensor->bytes)
                          ? &next_moved
                          : &next_kept;

        tensor->address = tensor->bytes == 0 ? NULL : *next;
        if (*next != NULL) {
            *next += gh_memory_align(tensor->bytes);
        }
    }
}

/* ---- groups ----------------------------------------------------------- */

static bool is_asked(const struct gh_offload *o, uint32_t module)
{
    return (module & GH_MODULE_NAMED) != 0
               ? (o->options.named >> (module & ~GH_MODULE_NAMED) & 1) != 0
               : (o->options.modules & module) != 0;
}

static enum gh_fate first_fate(const struct gh_offload *o, uint32_t layer,
                               uint32_t module)
{
    if (!is_asked(o, module)) {
        return GH_FATE_NOT_ASKED;
    }
    if ((module & GH_MODULE_NAMED) == 0 &&
        (o->plan->layer_plans[layer].offload_off & module) != 0) {
        return GH_FATE_PLAN;
    }
    return o->profiled ? GH_FATE_NEW : GH_FATE_GOES;
}

static gh_status check_module(const struct gh_offload *o, uint32_t layer,
                              uint32_t module, gh_error *err)
{
    const uint32_t own = module & ~GH_MODULE_NAMED;
    const bool known =
        (module & GH_MODULE_NAMED) != 0
            ? own < o->options.n_names
            : (module & (module - 1)) == 0 &&
                  (module & GH_MODULES_ALL & ~GH_MODULE_LAYER) != 0;

    if (layer >= o->plan->n_layers) {
        return gh_fail(err, GH_ERR_INVALID,
                       "offload: layer is %u, but the model has %u: count from "
                       "0",
                       layer, o->plan->n_layers);
    }
    if (!known) {
        return gh_fail(err, GH_ERR_INVALID,
                       "offload: module is 0x%x: give one GH_MODULE_*, or "
                       "GH_MODULE_NAMED with the index of one of "
                       "gh_offload_desc.names, which are %u",
                       module, o->options.n_names);
    }
    return GH_OK;
}

gh_status gh_group_meet(struct gh_offload *o, const struct gh_offload_at *at,
                        const gh_offload_group *wanted,
                        struct gh_group **group_p, struct gh_split *split_p,
                        gh_error *err)
{
    struct gh_group *group =
        gh_table_find(&o->table, wanted->layer, wanted->module);
    gh_status status;

    if (group == NULL) {
        status = check_module(o, wanted->layer, wanted->module, err);
        if (status == GH_OK) {
            status = gh_table_add(&o->table, wanted->layer, wanted->module,
                                  at->chunk, &group, err);
        }
        if (status != GH_OK) {
            return status;
        }
        group->fate = first_fate(o, wanted->layer, wanted->module);
    }
    *group_p = group;
    *split_p = gh_group_split(o, wanted, true);
    return GH_OK;
}

/* Whether the profile learns from this pass what of the group goes. */
static bool is_learned(const struct gh_offload *o,
                       const struct gh_offload_at *at,
                       const struct gh_group *group)
{
    return !o->profiled && !at->paused && group->fate != GH_FATE_NOT_ASKED &&
           group->fate != GH_FATE_PLAN;
}

gh_status
gh_group_find_class(struct gh_offload *o, const struct gh_offload_at *at,
                    const struct gh_group *group, const struct gh_split *split,
                    struct gh_size_class **size_class_p, gh_error *err)
{
    /* An evaluation says nothing about what a backward will read. */
    const bool other = at->forward_only ? group->size_class == NULL
                                        : split->goes > group->bytes;

    if (!is_learned(o, at, group) || split->goes == 0 || !other) {
        *size_class_p = group->size_class;
        return GH_OK;
    }
    return gh_table_find_class(&o->table, group->module, split->goes,
                               size_class_p, err);
}

/* Counts the groups of the class that one pass saves. */
static void count_in_pass(struct gh_size_class *size_class, uint64_t pass)
{
    if (size_class->pass != pass) {
        size_class->pass = pass;
        size_class->of_pass = 0;
    }
    if (++size_class->of_pass > size_class->in_pass) {
        size_class->in_pass = size_class->of_pass;
    }
}

void gh_group_learn(struct gh_offload *o, const struct gh_offload_at *at,
                    struct gh_group *group, const struct gh_split *split,
                    struct gh_size_class *size_class)
{
    const uint64_t all = split->goes + split->stays;

    if (!o->profiled && !at->forward_only && all > group->all) {
        group->all = all;
    }
    if (!is_learned(o, at, group)) {
        return;
    }
    group->size_class = size_class;
    if (at->forward_only) {
        return;
    }
    if (split->goes == 0) {
        group->fate = group->bytes == 0 ? GH_FATE_SMALL : group->fate;
        return;
    }
    group->fate = GH_FATE_GOES;
    if (split->goes > group->bytes) {
        group->bytes = split->goes;
    }
    count_in_pass(size_class, at->pass);
}

gh_status gh_group_saved(struct gh_offload *o, const struct gh_offload_at *at,
                         uint32_t layer, uint32_t module,
                         struct gh_instance **instance_p, gh_error *err)
{
    struct gh_group *group = gh_table_find(&o->table, layer, module);
    gh_status status;

    if (group == NULL) {
        status = check_module(o, layer, module, err);
        return status != GH_OK ? status
                               : gh_fail(err, GH_ERR_STATE,
                                         "offload: %s was never saved: call "
                                         "gh_offload_save in its forward",
                                         gh_group_name(o, layer, module).text);
    }
    return gh_table_instance(&o->table, group, at->slot, at->microbatch,
                             instance_p, err);
}

/* Makes the memory as large as `bytes`.  What it holds is lost. */
static gh_status widen(struct gh_offload *o, uint64_t bytes, void **memory_p,
                       uint64_t *bytes_p, gh_error *err)
{
    void *made = NULL;
    gh_status status;

    if (bytes <= *bytes_p) {
        return GH_OK;
    }
    status = gh_memory_alloc(o->memory, bytes, &made, err);
    if (status == GH_OK) {
        gh_memory_free(o->memory, *memory_p, *bytes_p);
        *memory_p = made;
        *bytes_p = bytes;
    }
    return status;
}

gh_status gh_group_keep(struct gh_offload *o, struct gh_instance *i,
                        uint64_t bytes, gh_error *err)
{
    const bool wider = i->recorded && bytes > i->kept_bytes;
    gh_status status = wider ? widen(o, bytes, &i->wider, &i->wider_bytes, err)
                             : widen(o, bytes, &i->kept, &i->kept_bytes, err);

    i->held = wider ? i->wider : i->kept;
    i->stays = bytes;
    return status;
}

/* Whether a backward will read from `kept` what an eager pass has left
 * there. */
static bool holds_kept(const struct gh_instance *i)
{
    return gh_instance_is_live(i) && i->stays != 0 && i->held == i->kept;
}

/* Gives the instance new memory for the graph.  The present flight keeps the
 * old one, as `wider`. */
static gh_status put_aside(struct gh_offload *o, struct gh_instance *i,
                           uint64_t bytes, gh_error *err)
{
    void *made = NULL;
    gh_status status = gh_memory_alloc(o->memory, bytes, &made, err);

    if (status == GH_OK) {
        gh_memory_free(o->memory, i->wider, i->wider_bytes);
        i->wider = i->kept;
        i->wider_bytes = i->kept_bytes;
        i->kept = made;
        i->kept_bytes = bytes;
    }
    return status;
}

gh_status gh_group_keep_for_graph(struct gh_offload *o, struct gh_instance *i,
                                  uint64_t bytes, gh_error *err)
{
    if (i->recorded && bytes <= i->kept_bytes) {
        return GH_OK; /* a graph knows where it is */
    }
    if (i->recorded) {
        return gh_fail(err, GH_ERR_INVALID,
                       "offload: %s needs %llu bytes on the device, and a "
                       "graph has %llu: give the same sizes in every pass, or "
                       "use the largest bank in a warmup step",
                       gh_group_name(o, i->group->layer, i->group->module).text,
                       (unsigned long long)bytes,
                       (unsigned long long)i->kept_bytes);
    }
    /* Graphs of all banks share this memory, so it is made for the largest. */
    if (bytes != 0 && bytes < i->group->all) {
        bytes = i->group->all;
    }
    return bytes > i->kept_bytes && holds_kept(i)
               ? put_aside(o, i, bytes, err)
               : widen(o, bytes, &i->kept, &i->kept_bytes, err);
}

gh_status gh_group_refuse_tensors(const struct gh_offload *o,
                                  const struct gh_instance *i,
                                  const gh_offload_group *wanted, gh_error *err)
{
    const struct gh_split split = gh_group_split(o, wanted, i->goes);

    return gh_fail(err, GH_ERR_INVALID,
                   "gh_offload_load: %s has other tensors than it was saved "
                   "with: %llu bytes that go and %llu that stay, and %llu and "
                   "%llu then",
                   gh_group_name(o, wanted->layer, wanted->module).text,
                   (unsigned long long)split.goes,
                   (unsigned long long)split.stays,
                   (unsigned long long)(i->goes ? i->bytes : 0),
                   (unsigned long long)i->stays);
}

static const char *state_text(const struct gh_instance *i)
{
    switch (i->state) {
    case GH_INSTANCE_IDLE:
        return "is not saved";
    case GH_INSTANCE_WRITING:
        return "is saved and not committed";
    case GH_INSTANCE_READING:
        return "is loaded already";
    case GH_INSTANCE_RELEASED:
        return "is released";
    default:
        return "is committed, and not loaded";
    }
}

gh_status gh_group_refuse(const struct gh_offload *o,
                          const struct gh_instance *i, const char *call,
                          gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "%s: %s of microbatch %u %s: save and commit each group "
                   "once in its forward, load and release it once in its "
                   "backward",
                   call,
                   gh_group_name(o, i->group->layer, i->group->module).text,
                   i->microbatch, state_text(i));
}

void gh_group_say_pool(struct gh_offload *o, const gh_error *why)
{
    if (o->profiled && !o->pool_said) {
        o->pool_said = true;
        gh_log_line(o->log, GH_LOG_WARN,
                    "offload: what finds no pinned memory stays on the device: "
                    "%.250s",
                    why->text);
    }
}
