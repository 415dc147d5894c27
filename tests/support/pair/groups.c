/*
 * groups.c - what parts keep for their backward, by the hooks of offload.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

bool pair_is_lent(const struct pair *p, uint32_t q, uint32_t g)
{
    return p->options.lends && p->parts[q] == GH_PART_MOE_EXPERTS && g == 0;
}

uint32_t pair_groups_of(const struct pair *p, uint32_t q,
                        const uint32_t **modules_p)
{
    static const uint32_t attn[] = { GH_MODULE_ATTN_NORM, GH_MODULE_CORE_ATTN },
                          norm[] = { GH_MODULE_MLP_NORM },
                          experts[] = { GH_MODULE_EXPERT_FC1,
                                        GH_MODULE_MOE_ACT };

    *modules_p = norm;
    switch (p->options.offload ? p->parts[q] : GH_PART_MOE_COMBINE) {
    case GH_PART_ATTN:
        *modules_p = attn;
        return 2;
    case GH_PART_MOE_ROUTER:
    case GH_PART_MLP:
        *modules_p = norm;
        return 1;
    case GH_PART_MOE_EXPERTS:
        *modules_p = experts;
        return 2;
    default:
        return 0;
    }
}

uint32_t pair_words(const struct pair *p)
{
    return p->options.words == 0 ? PAIR_ELEMS : p->options.words;
}

uint32_t pair_above(const struct pair *p, uint32_t q, uint32_t g)
{
    return pair_is_lent(p, q, g) ? 0 : 100 + 10 * q + g;
}

/* gh_offload_save, or _load. */
static bool find_group(struct pair *p, const struct pair_work *w, uint32_t q,
                       uint32_t g)
{
    const bool forward = w->direction == GH_FORWARD;
    struct lent_block *block =
        pair_is_lent(p, q, g) ? p->lent[w->set][q] : NULL;
    const uint32_t *modules;
    gh_offload_tensor tensor = { NULL, 4 * (uint64_t)pair_words(p) };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = p->layer_of[q],
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_status status;

    pair_groups_of(p, q, &modules);
    group.module = modules[g];
    if (forward && pair_is_lent(p, q, g)) {
        tensor.address = (void *)(uintptr_t)block->address;
        group.flags = GH_OFFLOAD_HOST_OWNED;
        group.object = block;
    }
    status = (forward ? gh_offload_save : gh_offload_load)(p->toy.session,
                                                           &group, &p->toy.err);
    if (forward && pair_is_lent(p, q, g)) {
        lender_saved(block, status == GH_OK);
    }
    p->kept[w->set][q][g] = (CUdeviceptr)(uintptr_t)tensor.address;
    return status == GH_OK;
}

static bool end_group(struct pair *p, const struct pair_work *w, uint32_t q,
                      uint32_t g)
{
    const bool forward = w->direction == GH_FORWARD;
    const uint32_t *modules;

    pair_groups_of(p, q, &modules);
    return (forward ? gh_offload_commit
                    : gh_offload_release)(p->toy.session, p->layer_of[q],
                                          modules[g], &p->toy.err) == GH_OK;
}

bool pair_keep_groups(struct pair *p, const struct pair_work *w, uint32_t q,
                      CUdeviceptr x, CUdeviceptr y)
{
    const uint32_t *modules;
    const uint32_t n = pair_groups_of(p, q, &modules);
    bool good = true;

    for (uint32_t g = 0; g < n && good; g++) {
        CUdeviceptr *t = &p->kept[w->set][q][g];

        good = find_group(p, w, q, g);
        if (good && !pair_is_lent(p, q, g)) {
            good = (pair_words(p) == PAIR_ELEMS ||
                    TOY_CALL(&p->toy, cuMemsetD32Async,
                             (*t, 0, pair_words(p), w->stream))) &&
                   pair_mix(p, *t, x, 0, 1, pair_above(p, q, g), w->stream);
        }
        good = good && pair_mix(p, y, *t, y, 1, 0, w->stream) &&
               end_group(p, w, q, g);
    }
    return good;
}

bool pair_read_group(struct pair *p, const struct pair_work *w, uint32_t q,
                     uint32_t g, CUdeviceptr into)
{
    const uint32_t *modules;

    return g >= pair_groups_of(p, q, &modules) ||
           (find_group(p, w, q, g) &&
            pair_mix(p, into, p->kept[w->set][q][g], into, 1, 0, w->stream) &&
            end_group(p, w, q, g));
}
