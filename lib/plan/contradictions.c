/*
 * contradictions.c - requests of one layer that exclude each other, whatever
 * is captured.
 *
 * There is no plan for such a layer, because no host could do what it
 * promises.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/rules.h"

static bool has_any(uint32_t bits, uint32_t wanted)
{
    return (bits & wanted) != 0;
}

static enum gh_cause in_itself(const struct gh_layer *layer)
{
    if (has_any(layer->offload, GH_MODULE_ATTN_PROJ) &&
        !has_any(layer->offload, GH_MODULE_CORE_ATTN)) {
        return GH_CAUSE_PROJ_ALONE;
    }
    if (has_any(layer->recompute, GH_MODULE_MOE) &&
        has_any(layer->offload, GH_MODULE_EXPERT_FC1 | GH_MODULE_MOE_ACT)) {
        return GH_CAUSE_OFFLOAD_RECOMPUTED;
    }
    if (has_any(layer->recompute, GH_MODULE_SHARED_EXPERTS) &&
        has_any(layer->features, GH_FEATURE_SHARED_OVERLAP)) {
        return GH_CAUSE_SHARED_RECOMPUTED;
    }
    return GH_CAUSE_NONE;
}

static enum gh_cause with_overlap(const struct gh_layer *layer)
{
    if (has_any(layer->features, GH_FEATURE_SHARED_OVERLAP)) {
        return GH_CAUSE_OVERLAP_SHARED;
    }
    if (has_any(layer->recompute, GH_MODULE_MOE)) {
        return GH_CAUSE_OVERLAP_RECOMPUTED;
    }
    if (has_any(layer->recompute, GH_MODULE_LAYER) &&
        gh_layer_has(layer, GH_PART_MOE_DISPATCH)) {
        return GH_CAUSE_OVERLAP_LAYER;
    }
    if (layer->backend == GH_BACKEND_NCCLEP &&
        has_any(layer->offload, GH_MODULE_EXPERT_FC1)) {
        return GH_CAUSE_OVERLAP_NCCLEP;
    }
    return GH_CAUSE_NONE;
}

enum gh_cause gh_rules_contradiction(const struct gh_layer *layer,
                                     const struct gh_plan_options *options)
{
    const enum gh_cause cause = in_itself(layer);

    if (cause != GH_CAUSE_NONE || !options->ep_overlap) {
        return cause;
    }
    return with_overlap(layer);
}
