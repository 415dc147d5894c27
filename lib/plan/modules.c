/*
 * modules.c - what becomes of the modules that a layer offloads or recomputes,
 * once it is known which parts are captured.
 *
 * A tensor that crosses the border of a graph keeps its address as long as the
 * graph lives.  So it cannot go to the host, and computing it again frees no
 * memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/rules.h"

/* With those of shared experts. */
static uint32_t expert_modules(void)
{
    return gh_modules_in(GH_MODULE_PART_EXPERTS) |
           gh_modules_in(GH_MODULE_PART_SHARED);
}

static bool granted(const struct gh_layer_plan *plan, enum gh_scope_item item)
{
    return (plan->granted & GH_SCOPE(item)) != 0;
}

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

/* Whether the input of a part crosses the border of a graph: exactly one of the
 * part and its predecessor is captured, or each is in a graph of its own. */
static bool reads_border(const struct gh_layer *layer, gh_part part,
                         const struct gh_plan_options *options,
                         enum gh_before before,
                         const struct gh_layer_plan *plan)
{
    const gh_part *parts;
    const uint32_t n = gh_layer_parts(layer, &parts);
    bool out = before == GH_BEFORE_GRAPH;
    bool reaches = options->granularity == GH_GRANULARITY_CHUNK;

    for (uint32_t i = 0; i < n && parts[i] != part; i++) {
        out = plan->graphed[parts[i]];
        reaches = options->granularity != GH_GRANULARITY_PART;
    }
    if (options->ep_overlap && gh_layer_node_begins(layer, part)) {
        reaches = false;
    }
    if (out && plan->graphed[part]) {
        return !reaches;
    }
    return out || plan->graphed[part];
}

/* Whether the input of the MLP norm crosses a border.  Before experts it is
 * also the residual, which leaves every graph that does not hold all of the
 * experts. */
static bool mlp_norm_reads_border(const struct gh_layer *layer,
                                  const struct gh_plan_options *options,
                                  enum gh_before before,
                                  const struct gh_layer_plan *plan)
{
    if (gh_layer_has(layer, GH_PART_MOE_ROUTER)) {
        return plan->graphed[GH_PART_MOE_ROUTER] ||
               reads_border(layer, GH_PART_MOE_ROUTER, options, before, plan);
    }
    return gh_layer_has(layer, GH_PART_MLP) &&
           reads_border(layer, GH_PART_MLP, options, before, plan);
}

/* The modules that lie in captured parts. */
static uint32_t captured_modules(const struct gh_layer *layer,
                                 const struct gh_layer_plan *plan)
{
    uint32_t captured = 0;

    if (granted(plan, GH_ITEM_ATTN)) {
        captured |= gh_modules_in(GH_MODULE_PART_ATTN);
    }
    if (granted(plan, GH_ITEM_MLP)) {
        captured |= gh_modules_in(GH_MODULE_PART_MLP) |
                    gh_modules_in(GH_MODULE_PART_NORM);
    }
    if (granted(plan, GH_ITEM_MOE)) {
        captured |= expert_modules() | gh_modules_in(GH_MODULE_PART_NORM);
    }
    if (granted(plan, GH_ITEM_MOE_ROUTER)) {
        captured |= gh_modules_in(GH_MODULE_PART_NORM);
        if ((layer->features & GH_FEATURE_SHARED_OVERLAP) == 0) {
            captured |= gh_modules_in(GH_MODULE_PART_SHARED);
        }
    }
    return captured;
}

/* Decides about each offloaded module.  One in a captured part is copied by
 * nodes of the graph. */
static void plan_offload(const struct gh_layer *layer,
                         const struct gh_plan_options *options,
                         enum gh_before before, struct gh_layer_plan *plan)
{
    const uint32_t captured = captured_modules(layer, plan);

    plan->offload_eager = layer->offload;
    if (gh_layer_has(layer, GH_PART_ATTN) &&
        reads_border(layer, GH_PART_ATTN, options, before, plan)) {
        switch_off(plan, GH_MODULE_ATTN_NORM, GH_CAUSE_OFFLOAD_ATTN_NORM);
    }
    if (granted(plan, GH_ITEM_MOE)) {
        switch_off(plan, expert_modules() | gh_modules_in(GH_MODULE_PART_NORM),
                   GH_CAUSE_OFFLOAD_MOE);
    }
    if (mlp_norm_reads_border(layer, options, before, plan)) {
        switch_off(plan, GH_MODULE_MLP_NORM, GH_CAUSE_OFFLOAD_MLP_NORM);
    }
    plan->offload_in_graph = plan->offload_eager & captured;
    plan->offload_eager &= ~captured;
}

/* Whether the MLP norm's output, in a layer with experts, stays inside the
 * graph that computed it.  It stays if only something made from it leaves: the
 * permutation of an all-to-all, or the projection of latent experts.  Other
 * dispatchers get the output itself, and overlapped shared experts read it
 * after the graph. */
static bool keeps_mlp_norm(const struct gh_layer *layer,
                           const struct gh_plan_options *options,
                           const struct gh_layer_plan *plan)
{
    if (options->granularity == GH_GRANULARITY_PART) {
        return false;
    }
    return granted(plan, GH_ITEM_MOE) ||
           (granted(plan, GH_ITEM_MOE_PREPROCESS) &&
            (layer->dispatcher == GH_DISPATCHER_ALLTOALL ||
             (layer->features & GH_FEATURE_LATENT) != 0) &&
            (layer->features & GH_FEATURE_SHARED_OVERLAP) == 0);
}

static void plan_recompute(const struct gh_layer *layer,
                           const struct gh_plan_options *options,
                           struct gh_layer_plan *plan)
{
    const uint32_t captured = captured_modules(layer, plan);
    const bool norm =
        granted(plan, GH_ITEM_MOE) || granted(plan, GH_ITEM_MOE_ROUTER);
    uint32_t recompute = layer->recompute;

    if (norm && (recompute & GH_MODULE_MLP_NORM) != 0 &&
        !keeps_mlp_norm(layer, options, plan)) {
        plan->recompute_off = GH_MODULE_MLP_NORM;
        plan->recompute_cause = GH_CAUSE_RECOMPUTE_MLP_NORM;
        recompute &= ~plan->recompute_off;
    }
    plan->recompute_in_graph = recompute & captured;
    plan->recompute_eager = recompute & ~captured;
}

void gh_rules_modules(const struct gh_layer *layer,
                      const struct gh_plan_options *options,
                      enum gh_before before, struct gh_layer_plan *plan)
{
    plan_offload(layer, options, before, plan);
    plan_recompute(layer, options, plan);
}
