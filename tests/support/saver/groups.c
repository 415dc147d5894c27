/*
 * groups.c - the groups of a part: the hooks of offload, and what is in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

#include <string.h>

uint32_t saver_words(uint32_t n, uint32_t t)
{
    return n >> t != 0 ? n >> t : 1;
}

uint32_t saver_constant(const struct saver *sv, uint32_t part, uint32_t k,
                        uint32_t t)
{
    t = sv->options.views ? 0 : t;
    return (part * SAVER_MAX_MODULES + k) * SAVER_MAX_TENSORS + t + 1;
}

uint32_t saver_groups(const struct saver *sv, bool evaluates)
{
    const uint32_t all = sv->options.modules;

    if (evaluates || sv->trained_modules == 0) {
        return all;
    }
    return sv->trained_modules <= all ? sv->trained_modules : 0;
}

/* ---- the hooks ----------------------------------------------------------- */

static enum saver_outcome heard(struct saver *sv, gh_status status,
                                enum saver_call call,
                                const struct saver_work *w, uint32_t layer,
                                uint32_t k)
{
    enum saver_answer answer = SAVER_GO_ON;

    sv->calls++;
    if (status != GH_OK) {
        return FAILS;
    }
    if (sv->watch != NULL) {
        answer = sv->watch(sv, call, layer, k, w->m);
    }
    return answer == SAVER_GO_ON ? GOES_ON
                                 : (answer == SAVER_AGAIN ? AGAIN : STOPS);
}

enum saver_outcome saver_begin_parts(struct saver *sv,
                                     const struct saver_work *w)
{
    return sv->watches_entries
               ? heard(sv, GH_OK, SAVER_ENTER, w, w->first / 2, 0)
               : GOES_ON;
}

/* Where the host's allocator has room for the group; not where the library
 * would align it. */
static struct lent_block *put_group(struct saver *sv, struct saver_group *group,
                                    const struct saver_work *w)
{
    uint64_t bytes = 0;
    struct lent_block *block;

    for (uint32_t t = 0; t < group->n_tensors; t++) {
        bytes += group->tensors[t].bytes + 64;
    }
    block = lender_find(&sv->lender, bytes, w->stream);
    bytes = 0;
    for (uint32_t t = 0; t < group->n_tensors && block != NULL; t++) {
        group->tensors[t].address = (void *)(uintptr_t)(block->address + bytes);
        bytes += sv->options.views ? 0 : group->tensors[t].bytes + 64;
    }
    return block;
}

enum saver_outcome saver_place(struct saver *sv, struct saver_group *group,
                               const struct saver_work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_offload_group wanted = { .struct_size = sizeof(wanted),
                                .layer = group->layer,
                                .module = saver_modules[group->k],
                                .n_tensors = sv->options.tensors,
                                .tensors = group->tensors };
    struct lent_block *block = NULL;
    gh_status status;

    group->n_tensors = wanted.n_tensors;
    for (uint32_t t = 0; t < wanted.n_tensors; t++) {
        group->tensors[t].bytes = (4 * (uint64_t)saver_words(w->n, t))
                                  << sv->grows;
    }
    if (sv->options.own && forward) {
        block = put_group(sv, group, w);
        wanted.flags = GH_OFFLOAD_OWN;
        wanted.object = sv->options.unlent ? NULL : block;
    }
    status = (forward ? gh_offload_save : gh_offload_load)(sv->session, &wanted,
                                                           &sv->err);
    if (block != NULL) {
        lender_saved(block, status == GH_OK);
    }
    group->block = block;
    if (status == GH_OK) {
        (forward ? sv->at : sv->back_at)[group->layer][group->k] =
            group->tensors[0].address;
    }
    return heard(sv, status, forward ? SAVER_SAVE : SAVER_LOAD, w, group->layer,
                 group->k);
}

static enum saver_outcome let_go_now(struct saver *sv,
                                     const struct saver_group *group,
                                     const struct saver_work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_status status = (forward ? gh_offload_commit : gh_offload_release)(
        sv->session, group->layer, saver_modules[group->k], &sv->err);

    if (status == GH_OK && forward && sv->options.unlent) {
        lender_take_back(NULL, group->block);
    }
    return heard(sv, status, forward ? SAVER_COMMIT : SAVER_RELEASE, w,
                 group->layer, group->k);
}

enum saver_outcome saver_let_go(struct saver *sv,
                                const struct saver_group *group,
                                const struct saver_work *w)
{
    if (!sv->options.at_once) {
        return let_go_now(sv, group, w);
    }
    sv->pending[sv->n_pending].block = group->block;
    sv->pending[sv->n_pending].layer = group->layer;
    sv->pending[sv->n_pending++].k = group->k;
    return GOES_ON;
}

enum saver_outcome saver_let_all_go(struct saver *sv,
                                    const struct saver_work *w)
{
    enum saver_outcome outcome = GOES_ON;

    for (uint32_t i = 0; i < sv->n_pending && outcome == GOES_ON; i++) {
        const struct saver_group group = { .layer = sv->pending[i].layer,
                                           .k = sv->pending[i].k,
                                           .block = sv->pending[i].block };

        outcome = let_go_now(sv, &group, w);
    }
    return outcome;
}

/* ---- what is in them ----------------------------------------------------- */

/* The tensor; where it is twice as large, its second half. */
static CUdeviceptr data(const struct saver *sv, const struct saver_group *group,
                        uint32_t t, bool second)
{
    return (CUdeviceptr)(uintptr_t)group->tensors[t].address +
           (second && sv->grows ? group->tensors[t].bytes / 2 : 0);
}

bool saver_write_group(struct saver *sv, const struct saver_group *group,
                       const struct saver_work *w, uint32_t part, CUdeviceptr x)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const uint32_t n = saver_words(w->n, t);
        const uint32_t k = saver_constant(sv, part, group->k, t);

        if (!saver_mix(sv, data(sv, group, t, false), x, 0, 1, k, n,
                       w->stream) ||
            (sv->grows && !saver_mix(sv, data(sv, group, t, true), x, 0, 1, k,
                                     n, w->stream))) {
            return false;
        }
    }
    return true;
}

bool saver_use_group(struct saver *sv, const struct saver_group *group,
                     const struct saver_work *w, CUdeviceptr y)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        if (!saver_mix(sv, y, data(sv, group, t, true), y, 1, 0,
                       saver_words(w->n, t), w->stream)) {
            return false;
        }
    }
    return true;
}

bool saver_add_group(struct saver *sv, const struct saver_group *group,
                     const struct saver_work *w, uint32_t part, CUdeviceptr g)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const CUdeviceptr of = data(sv, group, t, true);
        const CUdeviceptr gx = saver_grad(sv, w->set, part);
        const uint32_t n = saver_words(w->n, t);

        sv->has_added = true;
        if (!saver_add(sv, saver_sum(sv, w->set, part, group->k), of, g, n,
                       w->stream) ||
            !saver_mix(sv, gx, of, gx, 7, 0, n, w->stream)) {
            return false;
        }
    }
    return true;
}

/* ---- from one part of a layer to the other ------------------------------- */

bool saver_goes_across(const struct saver *sv, gh_direction direction,
                       uint32_t k)
{
    return k == 0 && (sv->options.across ||
                      (sv->options.loads_across && direction == GH_BACKWARD));
}

void saver_keep_across(struct saver *sv, const struct saver_group *group,
                       const struct saver_work *w, uint32_t part)
{
    memcpy(sv->across[w->direction][w->set][part / 2], group->tensors,
           sizeof(group->tensors));
    if (sv->decision.action == GH_ACTION_RECORD) {
        memcpy(sv->recorded[w->direction][w->set][part / 2], group->tensors,
               sizeof(group->tensors));
    }
}

void saver_find_across(struct saver *sv, const struct saver_work *w)
{
    const uint32_t begins = w->direction == GH_FORWARD ? 0 : 1;

    for (uint32_t part = w->first; part <= w->last; part++) {
        if (part % 2 == begins) {
            memcpy(sv->across[w->direction][w->set][part / 2],
                   sv->recorded[w->direction][w->set][part / 2],
                   sizeof(sv->recorded[0][0][0]));
        }
    }
}
