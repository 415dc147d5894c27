/*
 * offload.c - see offload.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/offload.h"

static uint32_t module_of(enum saved_module module)
{
    static const uint32_t known[] = {
        [SAVED_QKV_LINEAR] = GH_MODULE_QKV_LINEAR,
        [SAVED_CORE_ATTN] = GH_MODULE_CORE_ATTN,
        [SAVED_ATTN_PROJ] = GH_MODULE_ATTN_PROJ,
        [SAVED_MLP_NORM] = GH_MODULE_MLP_NORM,
        [SAVED_EXPERT_FC1] = GH_MODULE_EXPERT_FC1,
        [SAVED_MOE_ACT] = GH_MODULE_MOE_ACT,
    };

    return module < SAVED_FIRST_OWN
               ? known[module]
               : GH_MODULE_NAMED | (uint32_t)(module - SAVED_FIRST_OWN);
}

static bool is_same_group(const struct saved *a, const struct saved *b)
{
    return a->module == b->module && a->first == b->first && a->last == b->last;
}

static uint32_t layer_of(const struct host *host, const struct saved *saved)
{
    return (uint32_t)host->trainer->chunk->model.parts[saved->last].layer;
}

static int fail(struct host *host, const char *call, gh_status status,
                const gh_error *err)
{
    host->hook_failed = true;
    return host_fail(host, call, status, err);
}

/* Asks the library where the group that begins here is, and points the set
 * there. */
static int place(struct host *host, const struct set *set, int first, int n,
                 bool forward)
{
    const struct saved *saved = &set->saved[first];
    const size_t *bytes =
        host->trainer->chunk->saved_bytes[host->shape] + first;
    gh_offload_tensor tensors[GH_MAX_GROUP] = { { NULL, 0 } };
    gh_offload_group group = {
        .struct_size = sizeof(group),
        .layer = layer_of(host, saved),
        .module = module_of(saved->module),
        .n_tensors = (uint32_t)n,
        .tensors = tensors,
    };
    gh_error err = { "" };
    gh_status status;

    for (int i = 0; i < n; i++) {
        tensors[i].bytes = bytes[i];
    }
    status = (forward ? host->gh->offload_save : host->gh->offload_load)(
        host->session, &group, &err);
    if (status != GH_OK) {
        return fail(host, forward ? "gh_offload_save" : "gh_offload_load",
                    status, &err);
    }
    for (int i = 0; i < n; i++) {
        saved_place(&saved[i], tensors[i].address);
    }
    return 0;
}

static int let_go(struct host *host, const struct saved *saved, bool forward)
{
    gh_error err = { "" };
    gh_status status =
        (forward ? host->gh->offload_commit : host->gh->offload_release)(
            host->session, layer_of(host, saved), module_of(saved->module),
            &err);

    return status == GH_OK
               ? 0
               : fail(host, forward ? "gh_offload_commit" : "gh_offload_release",
                      status, &err);
}

/* Counts the tensors of the group that begins at i. */
static int count_group(const struct set *set, int i)
{
    int n = 1;

    while (i + n < set->n_saved &&
           is_same_group(&set->saved[i], &set->saved[i + n])) {
        n++;
    }
    return n;
}

static int before(void *user, const struct set *set, int part, bool forward)
{
    for (int i = 0, n; i < set->n_saved; i += n) {
        const struct saved *saved = &set->saved[i];

        n = count_group(set, i);
        if ((forward ? saved->first : saved->last) == part &&
            place(user, set, i, n, forward) != 0) {
            return -1;
        }
    }
    return 0;
}

static int after(void *user, const struct set *set, int part, bool forward)
{
    for (int i = 0, n; i < set->n_saved; i += n) {
        n = count_group(set, i);
        if (set->saved[i].last == part &&
            let_go(user, &set->saved[i], forward) != 0) {
            return -1;
        }
    }
    return 0;
}

struct part_hooks offload_hooks(struct host *host)
{
    return (struct part_hooks){ before, after, host };
}
