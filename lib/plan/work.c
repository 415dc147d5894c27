/*
 * work.c - what a segment does besides its forward and backward: delayed
 * gradients of weights, and communication.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#define PART(name) (UINT32_C(1) << GH_PART_##name)

/* The parts whose weights have gradients worth a pass of their own.  A router's
 * alone are too few. */
static uint32_t weights_of(const struct gh_layer *layer)
{
    uint32_t parts = PART(ATTN) | PART(MLP) | PART(MAMBA) | PART(MOE_EXPERTS);

    if ((layer->features & GH_FEATURE_SHARED_OVERLAP) != 0) {
        parts |= PART(MOE_COMBINE); /* shared experts are joined here */
    } else if ((layer->features & GH_FEATURE_SHARED_EXPERTS) != 0) {
        parts |= PART(MOE_ROUTER);
    }
    if ((layer->features & GH_FEATURE_LATENT) != 0) {
        parts |= PART(MOE_PREPROCESS) | PART(MOE_POST); /* down, and up */
    }
    return parts;
}

/* Whether a segment holds one of the parts that `parts_of` names for its
 * layers. */
static bool covers_any(const struct gh_plan *plan, uint32_t segment,
                       uint32_t (*parts_of)(const struct gh_layer *))
{
    const gh_segment *s = &plan->segments[segment];

    for (uint32_t i = s->first_layer; i <= s->last_layer; i++) {
        const uint32_t wanted = parts_of(&plan->layers[i]);
        const gh_part *parts;
        const uint32_t n = gh_layer_parts(&plan->layers[i], &parts);

        for (uint32_t k = 0; k < n; k++) {
            if ((wanted & UINT32_C(1) << parts[k]) != 0 &&
                gh_plan_covers(plan, s, i, parts[k])) {
                return true;
            }
        }
    }
    return false;
}

bool gh_plan_leaves_wgrad(const struct gh_plan *plan, uint32_t segment)
{
    return plan->options.delay_wgrad && covers_any(plan, segment, weights_of);
}

/* The parts that communicate between the ranks of a sequence.  Attention and
 * scans need the whole sequence, and so do the losses that balance a router. */
static uint32_t of_sequences(const struct gh_layer *layer)
{
    (void)layer;
    return PART(ATTN) | PART(MAMBA) | PART(MOE_ROUTER);
}

/* The parts that communicate between the ranks of the experts.  An all-to-all
 * exchanges its counts first. */
static uint32_t of_experts(const struct gh_layer *layer)
{
    const uint32_t tokens = PART(MOE_DISPATCH) | PART(MOE_COMBINE);

    return layer->dispatcher == GH_DISPATCHER_ALLTOALL
               ? tokens | PART(MOE_PREPROCESS)
               : tokens;
}

const char *const gh_group_names[] = { "cp", "ep", NULL };

uint32_t gh_plan_groups(const struct gh_plan *plan, uint32_t segment)
{
    uint32_t groups = 0;

    if (plan->model.cp_size > 1 && covers_any(plan, segment, of_sequences)) {
        groups |= 1u << 0;
    }
    if (plan->model.ep_size > 1 && covers_any(plan, segment, of_experts)) {
        groups |= 1u << 1;
    }
    return groups;
}
