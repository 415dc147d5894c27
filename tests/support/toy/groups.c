/*
 * groups.c - the groups of a part: the hooks of offload, and what is in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <string.h>

#define TRY(call) \
    do { \
        enum toy_outcome outcome_ = (call); \
        if (outcome_ != GOES_ON) { \
            return outcome_; \
        } \
    } while (0)

uint32_t toy_tensor_words(uint32_t n, uint32_t t)
{
    return n >> t != 0 ? n >> t : 1;
}

uint32_t toy_constant(const struct toy *toy, uint32_t part, uint32_t k,
                      uint32_t t)
{
    t = toy->options.views ? 0 : t;
    return (part * TOY_MAX_MODULES + k) * TOY_MAX_TENSORS + t + 1;
}

uint32_t toy_groups(const struct toy *toy, bool evaluates)
{
    const uint32_t all = toy->options.modules;

    if (evaluates || toy->trained_modules == 0) {
        return all;
    }
    return toy->trained_modules <= all ? toy->trained_modules : 0;
}

/* ---- the hooks ----------------------------------------------------------- */

static enum toy_outcome heard(struct toy *toy, gh_status status,
                              enum toy_call call, const struct toy_work *w,
                              uint32_t layer, uint32_t k)
{
    enum toy_answer answer = TOY_GO_ON;

    toy->calls++;
    if (status != GH_OK) {
        return FAILS;
    }
    if (toy->watch != NULL) {
        answer = toy->watch(toy, call, layer, k, w->m);
    }
    return answer == TOY_GO_ON ? GOES_ON
                               : (answer == TOY_AGAIN ? AGAIN : STOPS);
}

enum toy_outcome toy_begin_parts(struct toy *toy, const struct toy_work *w)
{
    return toy->watches_entries
               ? heard(toy, GH_OK, TOY_ENTER, w, w->first / 2, 0)
               : GOES_ON;
}

/* Where the host's allocator has room for the group; not where the library
 * would align it. */
static struct lent_block *put_group(struct toy *toy, struct toy_group *group,
                                    const struct toy_work *w)
{
    uint64_t bytes = 0;
    struct lent_block *block;

    for (uint32_t t = 0; t < group->n_tensors; t++) {
        bytes += group->tensors[t].bytes + 64;
    }
    block = lender_find(&toy->lender, bytes, w->stream);
    bytes = 0;
    for (uint32_t t = 0; t < group->n_tensors && block != NULL; t++) {
        group->tensors[t].address = (void *)(uintptr_t)(block->address + bytes);
        bytes += toy->options.views ? 0 : group->tensors[t].bytes + 64;
    }
    return block;
}

static enum toy_outcome find_group(struct toy *toy, struct toy_group *group,
                                   const struct toy_work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_offload_group wanted = { .struct_size = sizeof(wanted),
                                .layer = group->layer,
                                .module = toy_modules[group->k],
                                .n_tensors = toy->options.tensors,
                                .tensors = group->tensors };
    struct lent_block *block = NULL;
    gh_status status;

    group->n_tensors = wanted.n_tensors;
    for (uint32_t t = 0; t < wanted.n_tensors; t++) {
        group->tensors[t].bytes = (4 * (uint64_t)toy_tensor_words(w->n, t))
                                  << toy->grows;
    }
    if (toy->options.own && forward) {
        block = put_group(toy, group, w);
        wanted.flags = GH_OFFLOAD_HOST_OWNED;
        wanted.object = toy->options.unlent ? NULL : block;
    }
    status = (forward ? gh_offload_save : gh_offload_load)(toy->session,
                                                           &wanted, &toy->err);
    if (block != NULL) {
        lender_saved(block, status == GH_OK);
    }
    group->block = block;
    if (status == GH_OK) {
        (forward ? toy->at : toy->back_at)[group->layer][group->k] =
            group->tensors[0].address;
    }
    return heard(toy, status, forward ? TOY_SAVE : TOY_LOAD, w, group->layer,
                 group->k);
}

static enum toy_outcome end_now(struct toy *toy, const struct toy_group *group,
                                const struct toy_work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    gh_status status = (forward ? gh_offload_commit : gh_offload_release)(
        toy->session, group->layer, toy_modules[group->k], &toy->err);

    if (status == GH_OK && forward && toy->options.unlent) {
        lender_take_back(NULL, group->block);
    }
    return heard(toy, status, forward ? TOY_COMMIT : TOY_RELEASE, w,
                 group->layer, group->k);
}

static enum toy_outcome end_group(struct toy *toy,
                                  const struct toy_group *group,
                                  const struct toy_work *w)
{
    if (!toy->options.at_once) {
        return end_now(toy, group, w);
    }
    toy->pending[toy->n_pending].block = group->block;
    toy->pending[toy->n_pending].layer = group->layer;
    toy->pending[toy->n_pending++].k = group->k;
    return GOES_ON;
}

enum toy_outcome toy_end_groups(struct toy *toy, const struct toy_work *w)
{
    enum toy_outcome outcome = GOES_ON;

    for (uint32_t i = 0; i < toy->n_pending && outcome == GOES_ON; i++) {
        const struct toy_group group = { .layer = toy->pending[i].layer,
                                         .k = toy->pending[i].k,
                                         .block = toy->pending[i].block };

        outcome = end_now(toy, &group, w);
    }
    return outcome;
}

/* ---- what is in them ----------------------------------------------------- */

/* The tensor; where it is twice as large, its second half. */
static CUdeviceptr data(const struct toy *toy, const struct toy_group *group,
                        uint32_t t, bool second)
{
    return (CUdeviceptr)(uintptr_t)group->tensors[t].address +
           (second && toy->grows ? group->tensors[t].bytes / 2 : 0);
}

static bool write_group(struct toy *toy, const struct toy_group *group,
                        const struct toy_work *w, uint32_t part, CUdeviceptr x)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const uint32_t n = toy_tensor_words(w->n, t);
        const uint32_t k = toy_constant(toy, part, group->k, t);

        if (!toy_mixes(toy, data(toy, group, t, false), x, 0, 1, k, n,
                       w->stream) ||
            (toy->grows && !toy_mixes(toy, data(toy, group, t, true), x, 0, 1,
                                      k, n, w->stream))) {
            return false;
        }
    }
    return true;
}

static bool use_group(struct toy *toy, const struct toy_group *group,
                      const struct toy_work *w, CUdeviceptr y)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        if (!toy_mixes(toy, y, data(toy, group, t, true), y, 1, 0,
                       toy_tensor_words(w->n, t), w->stream)) {
            return false;
        }
    }
    return true;
}

static bool add_group(struct toy *toy, const struct toy_group *group,
                      const struct toy_work *w, uint32_t part, CUdeviceptr g)
{
    for (uint32_t t = 0; t < group->n_tensors; t++) {
        const CUdeviceptr of = data(toy, group, t, true);
        const CUdeviceptr gx = toy_grad(toy, w->set, part);
        const uint32_t n = toy_tensor_words(w->n, t);

        toy->has_added = true;
        if (!toy_adds(toy, toy_sum(toy, w->set, part, group->k), of, g, n,
                      w->stream) ||
            !toy_mixes(toy, gx, of, gx, 7, 0, n, w->stream)) {
            return false;
        }
    }
    return true;
}

/* ---- from one part of a layer to the other ------------------------------- */

static bool goes_across(const struct toy *toy, gh_direction direction,
                        uint32_t k)
{
    return k == 0 && (toy->options.across ||
                      (toy->options.loads_across && direction == GH_BACKWARD));
}

static void keep_across(struct toy *toy, const struct toy_group *group,
                        const struct toy_work *w, uint32_t part)
{
    memcpy(toy->across[w->direction][w->set][part / 2], group->tensors,
           sizeof(group->tensors));
    if (toy->decision.action == GH_ACTION_RECORD) {
        memcpy(toy->recorded[w->direction][w->set][part / 2], group->tensors,
               sizeof(group->tensors));
    }
}

void toy_find_across(struct toy *toy, const struct toy_work *w)
{
    const uint32_t begins = w->direction == GH_FORWARD ? 0 : 1;

    for (uint32_t part = w->first; part <= w->last; part++) {
        if (part % 2 == begins) {
            memcpy(toy->across[w->direction][w->set][part / 2],
                   toy->recorded[w->direction][w->set][part / 2],
                   sizeof(toy->recorded[0][0][0]));
        }
    }
}

static enum toy_outcome end_across(struct toy *toy, const struct toy_work *w,
                                   uint32_t part, CUdeviceptr y)
{
    struct toy_group group = { .layer = part / 2,
                               .n_tensors = toy->options.tensors };

    memcpy(group.tensors, toy->across[w->direction][w->set][part / 2],
           sizeof(group.tensors));
    return use_group(toy, &group, w, y) ? end_group(toy, &group, w) : FAILS;
}

/* ---- those of a part ----------------------------------------------------- */

enum toy_outcome toy_save_groups(struct toy *toy, const struct toy_work *w,
                                 uint32_t part, CUdeviceptr x, CUdeviceptr y)
{
    for (uint32_t k = part % 2; k < toy_groups(toy, w->evaluates); k += 2) {
        struct toy_group group = { .layer = part / 2, .k = k };

        TRY(find_group(toy, &group, w));
        if (!write_group(toy, &group, w, part, x) ||
            !use_group(toy, &group, w, y)) {
            return FAILS;
        }
        if (goes_across(toy, GH_FORWARD, k)) {
            keep_across(toy, &group, w, part);
        } else {
            TRY(end_group(toy, &group, w));
        }
    }
    return part % 2 == 1 && goes_across(toy, GH_FORWARD, 0)
               ? end_across(toy, w, part, y)
               : GOES_ON;
}

static enum toy_outcome load_group(struct toy *toy, const struct toy_work *w,
                                   uint32_t part, CUdeviceptr g, uint32_t k)
{
    struct toy_group group = { .layer = part / 2,
                               .k = k,
                               .n_tensors = toy->options.tensors };

    if (goes_across(toy, GH_BACKWARD, k)) {
        memcpy(group.tensors, toy->across[w->direction][w->set][part / 2],
               sizeof(group.tensors));
    } else {
        TRY(find_group(toy, &group, w));
    }
    return add_group(toy, &group, w, part, g) ? end_group(toy, &group, w)
                                              : FAILS;
}

enum toy_outcome toy_load_groups(struct toy *toy, const struct toy_work *w,
                                 uint32_t part, CUdeviceptr g)
{
    struct toy_group across = { .layer = part / 2 };

    if (toy->loads_nothing) {
        return GOES_ON;
    }
    for (uint32_t k = toy_groups(toy, false); k-- > 0;) {
        if (k % 2 == part % 2) {
            TRY(load_group(toy, w, part, g, k));
        }
    }
    if (part % 2 == 1 && goes_across(toy, GH_BACKWARD, 0)) {
        TRY(find_group(toy, &across, w));
        keep_across(toy, &across, w, part);
    }
    return GOES_ON;
}
