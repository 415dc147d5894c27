/*
 * rules.c - the rules that users of scoped capture know, one function each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/rules.h"

#include "base/error.h"

#include <string.h>

const struct gh_cause_text gh_causes[GH_CAUSE_COUNT] = {
    [GH_CAUSE_NONE] = { "", "" },
    [GH_CAUSE_RECOMPUTE_LAYER] = { "it is recomputed as a whole, in the "
                                   "backward",
                                   "recompute modules of the layer, or leave "
                                   "it eager" },
    [GH_CAUSE_OFFLOAD_LAYER] = { "all of its activations are offloaded, and "
                                 "those of a graph stay where the graph "
                                 "expects them",
                                 "offload modules of the layer, or leave it "
                                 "eager" },
    [GH_CAUSE_ATTN_RANDOM] = { "its attention has dropout and is recomputed, "
                               "and a graph would draw "
                               "other random numbers the second time",
                               "switch off attention dropout, or the "
                               "recomputation of core_attn" },
    [GH_CAUSE_MLP_RANDOM] = { "its MLP has dropout and is recomputed, and a "
                              "graph would draw other "
                              "random numbers the second time",
                              "switch off hidden dropout, or the recomputation "
                              "of mlp" },
    [GH_CAUSE_MOE_RANDOM] = { "its experts draw random numbers and are "
                              "recomputed, and a graph "
                              "would draw others the second time",
                              "switch off dropout and jitter, or the "
                              "recomputation of moe" },
    [GH_CAUSE_ONE_EXPERT] = { "it has one expert, so nothing is routed",
                              "describe it as a dense layer" },
    [GH_CAUSE_DYNAMIC_EXPERTS] = { "its experts get another number of tokens "
                                   "in every pass, and a graph "
                                   "has fixed shapes",
                                   "set a capacity and pad to it, or name "
                                   "moe_router instead of moe" },
    [GH_CAUSE_OVERLAP] = { "its communication is hidden behind another "
                           "microbatch, between the "
                           "parts that a graph of all of it would tie together",
                           "name moe_router instead of moe, or switch off the "
                           "overlap" },
    [GH_CAUSE_RECOMPUTE_MOE] = { "its experts are recomputed as one unit, "
                                 "which the end of the graph "
                                 "would cut in two",
                                 "recompute moe_act or mlp_norm instead of "
                                 "moe, or leave moe_router "
                                 "out" },
    [GH_CAUSE_COUNTS_TO_HOST] = { "its all-to-all must tell the host how many "
                                  "tokens each expert gets "
                                  "before the permutation is known",
                                  "pad to the capacity, switch off fp8 "
                                  "padding, or leave "
                                  "moe_preprocess out" },
    [GH_CAUSE_OFFLOAD_ATTN_NORM] = { "the output of its attention norm is "
                                     "needed across the border of the "
                                     "graph, so it stays on the device",
                                     "leave attn_norm out of the offloaded "
                                     "modules" },
    [GH_CAUSE_OFFLOAD_MLP_NORM] = { "the output of its MLP norm is needed "
                                    "across the border of the "
                                    "graph, so it stays on the device",
                                    "leave mlp_norm out of the offloaded "
                                    "modules" },
    [GH_CAUSE_OFFLOAD_MOE] = { "its experts are captured as a whole, so their "
                               "activations stay on "
                               "the device",
                               "leave the modules of the experts out of the "
                               "offloaded ones" },
};

#define NOT_NAMED "the scope does not name it"
#define NAMED "the scope names it"
#define WHOLE "no scope is set, which means whole layers"

const char *gh_item_name(enum gh_scope_item item)
{
    static const char *const names[GH_ITEM_COUNT] = {
        "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba",
    };

    return item < GH_ITEM_COUNT ? names[item] : "?";
}

bool gh_item_applies(enum gh_scope_item item, gh_layer_kind kind)
{
    static const gh_part parts[GH_ITEM_COUNT] = {
        [GH_ITEM_ATTN] = GH_PART_ATTN,
        [GH_ITEM_MLP] = GH_PART_MLP,
        [GH_ITEM_MOE] = GH_PART_MOE_ROUTER,
        [GH_ITEM_MOE_ROUTER] = GH_PART_MOE_ROUTER,
        [GH_ITEM_MOE_PREPROCESS] = GH_PART_MOE_PREPROCESS,
        [GH_ITEM_MAMBA] = GH_PART_MAMBA,
    };

    return gh_kind_has(kind, parts[item]);
}

gh_status gh_rules_check_scope(uint32_t scope, gh_error *err)
{
    if ((scope & GH_SCOPE(GH_ITEM_MOE)) != 0 &&
        (scope & GH_SCOPE(GH_ITEM_MOE_ROUTER)) != 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "scope: moe already holds moe_router: name one of "
                       "them");
    }
    if ((scope & GH_SCOPE(GH_ITEM_MOE_PREPROCESS)) != 0 &&
        (scope & GH_SCOPE(GH_ITEM_MOE_ROUTER)) == 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "scope: moe_preprocess goes on where moe_router ends: "
                       "name moe_router too");
    }
    return GH_OK;
}

static bool has(const struct gh_layer *layer, uint32_t features)
{
    return (layer->features & features) == features;
}

static bool recomputes(const struct gh_layer *layer, uint32_t modules)
{
    return (layer->recompute & modules) != 0;
}

static bool has_static_experts(const struct gh_layer *layer)
{
    return has(layer, GH_FEATURE_CAPACITY | GH_FEATURE_PAD) ||
           has(layer, GH_FEATURE_SYNC_FREE);
}

static enum gh_cause attn_cause(const struct gh_layer *layer)
{
    if (has(layer, GH_FEATURE_ATTN_DROPOUT) &&
        recomputes(layer, GH_MODULE_CORE_ATTN)) {
        return GH_CAUSE_ATTN_RANDOM;
    }
    return GH_CAUSE_NONE;
}

static enum gh_cause mlp_cause(const struct gh_layer *layer)
{
    if (has(layer, GH_FEATURE_HIDDEN_DROPOUT) &&
        recomputes(layer, GH_MODULE_MLP)) {
        return GH_CAUSE_MLP_RANDOM;
    }
    return GH_CAUSE_NONE;
}

static enum gh_cause moe_cause(const struct gh_layer *layer, bool ep_overlap)
{
    if (layer->experts < 2) {
        return GH_CAUSE_ONE_EXPERT;
    }
    if (!has_static_experts(layer)) {
        return GH_CAUSE_DYNAMIC_EXPERTS;
    }
    if (ep_overlap) {
        return GH_CAUSE_OVERLAP;
    }
    if (recomputes(layer, GH_MODULE_MOE) &&
        (has(layer, GH_FEATURE_HIDDEN_DROPOUT) ||
         has(layer, GH_FEATURE_ROUTER_JITTER))) {
        return GH_CAUSE_MOE_RANDOM;
    }
    return GH_CAUSE_NONE;
}

static enum gh_cause router_cause(const struct gh_layer *layer)
{
    if (layer->experts < 2) {
        return GH_CAUSE_ONE_EXPERT;
    }
    if (recomputes(layer, GH_MODULE_MOE)) {
        return GH_CAUSE_RECOMPUTE_MOE;
    }
    return GH_CAUSE_NONE;
}

/* Dropless all-to-all is fine: its counts go to the host after the graph. */
static enum gh_cause preprocess_cause(const struct gh_layer *layer)
{
    if (layer->dispatcher == GH_DISPATCHER_ALLTOALL &&
        !has_static_experts(layer) &&
        (has(layer, GH_FEATURE_CAPACITY) ||
         has(layer, GH_FEATURE_FP8_PADDING))) {
        return GH_CAUSE_COUNTS_TO_HOST;
    }
    return GH_CAUSE_NONE;
}

static enum gh_cause cause_of(enum gh_scope_item item,
                              const struct gh_layer *layer, bool ep_overlap)
{
    if (recomputes(layer, GH_MODULE_LAYER)) {
        return GH_CAUSE_RECOMPUTE_LAYER;
    }
    if ((layer->offload & GH_MODULE_LAYER) != 0) {
        return GH_CAUSE_OFFLOAD_LAYER;
    }
    switch (item) {
    case GH_ITEM_ATTN:
        return attn_cause(layer);
    case GH_ITEM_MLP:
        return mlp_cause(layer);
    case GH_ITEM_MOE:
        return moe_cause(layer, ep_overlap);
    case GH_ITEM_MOE_ROUTER:
        return router_cause(layer);
    case GH_ITEM_MOE_PREPROCESS:
        return preprocess_cause(layer);
    default:
        return GH_CAUSE_NONE;
    }
}

static void grant(const struct gh_layer *layer, enum gh_scope_item item,
                  bool ep_overlap, struct gh_layer_plan *plan)
{
    if (!gh_item_applies(item, layer->kind)) {
        return;
    }
    plan->refused[item] = cause_of(item, layer, ep_overlap);
    if (plan->refused[item] == GH_CAUSE_NONE) {
        plan->granted |= GH_SCOPE(item);
    }
}

static bool granted(const struct gh_layer_plan *plan, enum gh_scope_item item)
{
    return (plan->granted & GH_SCOPE(item)) != 0;
}

/* Whole layers: of experts that cannot be captured, what comes before them. */
static void grant_whole(const struct gh_layer *layer, bool ep_overlap,
                        struct gh_layer_plan *plan)
{
    grant(layer, GH_ITEM_ATTN, ep_overlap, plan);
    grant(layer, GH_ITEM_MLP, ep_overlap, plan);
    grant(layer, GH_ITEM_MAMBA, ep_overlap, plan);
    grant(layer, GH_ITEM_MOE, ep_overlap, plan);
    if (plan->refused[GH_ITEM_MOE] == GH_CAUSE_NONE) {
        return;
    }
    grant(layer, GH_ITEM_MOE_ROUTER, ep_overlap, plan);
    if (granted(plan, GH_ITEM_MOE_ROUTER)) {
        grant(layer, GH_ITEM_MOE_PREPROCESS, ep_overlap, plan);
    }
}

static void grant_named(const struct gh_layer *layer, uint32_t scope,
                        bool ep_overlap, struct gh_layer_plan *plan)
{
    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if ((scope & GH_SCOPE(item)) != 0) {
            grant(layer, item, ep_overlap, plan);
        }
    }
    /* What goes on where the router ends is refused with it. */
    if ((scope & GH_SCOPE(GH_ITEM_MOE_PREPROCESS)) != 0 &&
        plan->refused[GH_ITEM_MOE_ROUTER] != GH_CAUSE_NONE) {
        plan->refused[GH_ITEM_MOE_PREPROCESS] =
            plan->refused[GH_ITEM_MOE_ROUTER];
        plan->granted &= ~GH_SCOPE(GH_ITEM_MOE_PREPROCESS);
    }
}

/* The item that decides over a part. */
static enum gh_scope_item item_of(gh_part part,
                                  const struct gh_layer_plan *plan)
{
    const bool whole = granted(plan, GH_ITEM_MOE);

    switch (part) {
    case GH_PART_ATTN:
        return GH_ITEM_ATTN;
    case GH_PART_MLP:
        return GH_ITEM_MLP;
    case GH_PART_MAMBA:
        return GH_ITEM_MAMBA;
    case GH_PART_MOE_ROUTER:
        return whole ? GH_ITEM_MOE : GH_ITEM_MOE_ROUTER;
    case GH_PART_MOE_PREPROCESS:
        return whole ? GH_ITEM_MOE : GH_ITEM_MOE_PREPROCESS;
    default:
        return GH_ITEM_MOE;
    }
}

static const char *reason_for(enum gh_scope_item item, uint32_t scope,
                              const struct gh_layer_plan *plan)
{
    if (granted(plan, item)) {
        return scope == 0 ? WHOLE : NAMED;
    }
    if (plan->refused[item] != GH_CAUSE_NONE) {
        return gh_causes[plan->refused[item]].why;
    }
    /* moe was asked for and refused: what would have been part of it. */
    if (plan->refused[GH_ITEM_MOE] != GH_CAUSE_NONE &&
        (item == GH_ITEM_MOE_ROUTER || item == GH_ITEM_MOE_PREPROCESS)) {
        return gh_causes[plan->refused[GH_ITEM_MOE]].why;
    }
    return NOT_NAMED;
}

#define ATTN_MODULES \
    (GH_MODULE_ATTN_NORM | GH_MODULE_QKV_LINEAR | GH_MODULE_CORE_ATTN | \
     GH_MODULE_ATTN_PROJ)
#define EXPERT_MODULES \
    (GH_MODULE_MOE | GH_MODULE_SHARED_EXPERTS | GH_MODULE_EXPERT_FC1 | \
     GH_MODULE_MOE_ACT)

static void switch_off(struct gh_layer_plan *plan, uint32_t modules,
                       enum gh_cause cause)
{
    if ((plan->offload_eager & modules) == 0) {
        return;
    }
    plan->offload_off |= plan->offload_eager & modules;
    plan->offload_eager &= ~modules;
    plan->offload_cause[plan->offload_cause[0] != GH_CAUSE_NONE] = cause;
}

/* What is offloaded inside a captured part is copied from inside a graph. */
static void plan_offload(const struct gh_layer *layer,
                         struct gh_layer_plan *plan)
{
    uint32_t captured = 0;

    plan->offload_eager = layer->offload;
    if (granted(plan, GH_ITEM_ATTN)) {
        switch_off(plan, GH_MODULE_ATTN_NORM, GH_CAUSE_OFFLOAD_ATTN_NORM);
        captured |= ATTN_MODULES;
    }
    if (granted(plan, GH_ITEM_MOE)) {
        switch_off(plan, EXPERT_MODULES | GH_MODULE_MLP_NORM,
                   GH_CAUSE_OFFLOAD_MOE);
    }
    if (granted(plan, GH_ITEM_MLP) || granted(plan, GH_ITEM_MOE_ROUTER)) {
        switch_off(plan, GH_MODULE_MLP_NORM, GH_CAUSE_OFFLOAD_MLP_NORM);
    }
    if (granted(plan, GH_ITEM_MLP)) {
        captured |= GH_MODULE_MLP;
    }
    if (granted(plan, GH_ITEM_MOE_ROUTER) &&
        !has(layer, GH_FEATURE_SHARED_OVERLAP)) {
        captured |= GH_MODULE_SHARED_EXPERTS;
    }
    plan->offload_in_graph = plan->offload_eager & captured;
    plan->offload_eager &= ~captured;
}

void gh_rules_layer(const struct gh_layer *layer, uint32_t scope,
                    bool ep_overlap, struct gh_layer_plan *plan)
{
    const struct gh_kind *kind = &gh_kinds[layer->kind];

    memset(plan, 0, sizeof(*plan));
    if (scope == 0) {
        grant_whole(layer, ep_overlap, plan);
    } else {
        grant_named(layer, scope, ep_overlap, plan);
    }
    for (uint32_t i = 0; i < kind->n_parts; i++) {
        const enum gh_scope_item item = item_of(kind->parts[i], plan);

        plan->graphed[kind->parts[i]] = granted(plan, item);
        plan->reason[kind->parts[i]] = reason_for(item, scope, plan);
    }
    plan_offload(layer, plan);
}
