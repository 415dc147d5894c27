/*
 * rules.c - the rules of scoped capture, one function for each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/rules.h"

#include "base/error.h"

#include <string.h>

#define NOT_NAMED "the scope does not name it"
#define NAMED "the scope names it"
#define WHOLE "no scope is set, which means whole layers"
#define BESIDE "the scope names the part beside it"

bool gh_item_applies(enum gh_scope_item item, const struct gh_layer *layer)
{
    static const gh_part parts[GH_ITEM_COUNT] = {
        [GH_ITEM_ATTN] = GH_PART_ATTN,
        [GH_ITEM_MLP] = GH_PART_MLP,
        [GH_ITEM_MOE] = GH_PART_MOE_ROUTER,
        [GH_ITEM_MOE_ROUTER] = GH_PART_MOE_ROUTER,
        [GH_ITEM_MOE_PREPROCESS] = GH_PART_MOE_PREPROCESS,
        [GH_ITEM_MAMBA] = GH_PART_MAMBA,
    };

    return gh_layer_has(layer, parts[item]);
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

static uint32_t attn_causes(const struct gh_layer *layer)
{
    if (has(layer, GH_FEATURE_ATTN_DROPOUT) &&
        recomputes(layer, GH_MODULE_CORE_ATTN)) {
        return gh_cause_bit(GH_CAUSE_ATTN_RANDOM);
    }
    return 0;
}

/* Why the experts' shapes depend on the routing, or the host must know it.  A
 * dispatcher that gathers tells the host its counts even if shapes are
 * fixed. */
static uint32_t shape_causes(const struct gh_layer *layer)
{
    if (layer->dispatcher == GH_DISPATCHER_ALLGATHER &&
        !has(layer, GH_FEATURE_SYNC_FREE)) {
        return gh_cause_bit(GH_CAUSE_GATHER_TO_HOST);
    }
    if (has_static_experts(layer)) {
        return 0;
    }
    return gh_cause_bit(layer->experts < 2 ? GH_CAUSE_ONE_EXPERT
                                           : GH_CAUSE_DYNAMIC_EXPERTS);
}

/* Why experts that are recomputed as one unit cannot be captured. */
static uint32_t unit_causes(const struct gh_layer *layer,
                            const struct gh_plan_options *options)
{
    if (!recomputes(layer, GH_MODULE_MOE)) {
        return 0;
    }
    if (options->granularity == GH_GRANULARITY_PART) {
        return gh_cause_bit(GH_CAUSE_RECOMPUTE_PARTS);
    }
    /* Only the router's jitter draws inside the unit.  Dropout comes after it,
     * and is drawn once. */
    if (has(layer, GH_FEATURE_ROUTER_JITTER)) {
        return gh_cause_bit(GH_CAUSE_MOE_RANDOM);
    }
    return 0;
}

static uint32_t moe_causes(const struct gh_layer *layer,
                           const struct gh_plan_options *options)
{
    uint32_t causes = shape_causes(layer) | unit_causes(layer, options);

    if (has(layer, GH_FEATURE_HOST_ROUTER)) {
        causes |= gh_cause_bit(GH_CAUSE_HOST_ROUTER);
    }
    if (options->ep_overlap) {
        causes |= gh_cause_bit(GH_CAUSE_OVERLAP);
    }
    return causes;
}

static uint32_t router_causes(const struct gh_layer *layer)
{
    uint32_t causes = 0;

    if (layer->experts < 2 && !has_static_experts(layer)) {
        causes |= gh_cause_bit(GH_CAUSE_ONE_EXPERT);
    }
    if (has(layer, GH_FEATURE_HOST_ROUTER)) {
        causes |= gh_cause_bit(GH_CAUSE_HOST_ROUTER);
    }
    if (recomputes(layer, GH_MODULE_MOE)) {
        causes |= gh_cause_bit(GH_CAUSE_RECOMPUTE_MOE);
    }
    return causes;
}

/* Dropless all-to-all is captured, because its counts go to the host after the
 * graph. */
static uint32_t preprocess_causes(const struct gh_layer *layer)
{
    if (layer->dispatcher == GH_DISPATCHER_ALLTOALL &&
        !has_static_experts(layer) &&
        (has(layer, GH_FEATURE_CAPACITY) ||
         has(layer, GH_FEATURE_FP8_PADDING))) {
        return gh_cause_bit(GH_CAUSE_COUNTS_TO_HOST);
    }
    return 0;
}

/* Whether the family keeps a part of the item eager.  For moe that is any part
 * of the experts. */
static bool family_refuses(enum gh_scope_item item,
                           const struct gh_layer *layer)
{
    static const struct {
        gh_part first, last;
    } parts[GH_ITEM_COUNT] = {
        [GH_ITEM_ATTN] = { GH_PART_ATTN, GH_PART_ATTN },
        [GH_ITEM_MLP] = { GH_PART_MLP, GH_PART_MLP },
        [GH_ITEM_MOE] = { GH_PART_MOE_ROUTER, GH_PART_MOE_POST },
        [GH_ITEM_MOE_ROUTER] = { GH_PART_MOE_ROUTER, GH_PART_MOE_ROUTER },
        [GH_ITEM_MOE_PREPROCESS] = { GH_PART_MOE_PREPROCESS,
                                     GH_PART_MOE_PREPROCESS },
        [GH_ITEM_MAMBA] = { GH_PART_MAMBA, GH_PART_MAMBA },
    };

    for (gh_part part = parts[item].first; part <= parts[item].last; part++) {
        if (!gh_layer_may_capture(layer, part)) {
            return true;
        }
    }
    return false;
}

/* The causes that hold for every word. */
static uint32_t layer_causes(enum gh_scope_item item,
                             const struct gh_layer *layer)
{
    uint32_t causes = 0;

    if (recomputes(layer, GH_MODULE_LAYER)) {
        causes |= gh_cause_bit(GH_CAUSE_RECOMPUTE_LAYER);
    }
    if ((layer->offload & GH_MODULE_LAYER) != 0) {
        causes |= gh_cause_bit(GH_CAUSE_OFFLOAD_LAYER);
    }
    if (has(layer, GH_FEATURE_PACKED) && !has(layer, GH_FEATURE_PACKED_PAD)) {
        causes |= gh_cause_bit(GH_CAUSE_PACKED);
    }
    if (family_refuses(item, layer)) {
        causes |= gh_cause_bit(GH_CAUSE_FAMILY);
    }
    return causes;
}

/* All causes that keep the item eager in this layer; each of them has to go. */
static uint32_t causes_of(enum gh_scope_item item, const struct gh_layer *layer,
                          const struct gh_plan_options *options)
{
    const uint32_t causes = layer_causes(item, layer);

    switch (item) {
    case GH_ITEM_ATTN:
        return causes | attn_causes(layer);
    case GH_ITEM_MOE:
        return causes | moe_causes(layer, options);
    case GH_ITEM_MOE_ROUTER:
        return causes | router_causes(layer);
    case GH_ITEM_MOE_PREPROCESS:
        return causes | preprocess_causes(layer);
    default:
        return causes;
    }
}

/* The words that can be named instead of moe. */
static uint32_t instead_of_moe(const struct gh_layer *layer,
                               const struct gh_plan_options *options)
{
    if (causes_of(GH_ITEM_MOE_ROUTER, layer, options) != 0) {
        return 0;
    }
    if (causes_of(GH_ITEM_MOE_PREPROCESS, layer, options) != 0) {
        return GH_SCOPE(GH_ITEM_MOE_ROUTER);
    }
    return GH_SCOPE(GH_ITEM_MOE_ROUTER) | GH_SCOPE(GH_ITEM_MOE_PREPROCESS);
}

static void grant(const struct gh_layer *layer, enum gh_scope_item item,
                  const struct gh_plan_options *options,
                  struct gh_layer_plan *plan)
{
    if (!gh_item_applies(item, layer)) {
        return;
    }
    plan->refused[item] = causes_of(item, layer, options);
    if (plan->refused[item] == 0) {
        plan->granted |= GH_SCOPE(item);
    } else if (item == GH_ITEM_MOE) {
        plan->instead = instead_of_moe(layer, options);
    }
}

static bool granted(const struct gh_layer_plan *plan, enum gh_scope_item item)
{
    return (plan->granted & GH_SCOPE(item)) != 0;
}

/* Grants all of a layer.  If experts cannot be captured, it grants the parts
 * before them. */
static void grant_whole(const struct gh_layer *layer,
                        const struct gh_plan_options *options,
                        struct gh_layer_plan *plan)
{
    grant(layer, GH_ITEM_ATTN, options, plan);
    grant(layer, GH_ITEM_MLP, options, plan);
    grant(layer, GH_ITEM_MAMBA, options, plan);
    grant(layer, GH_ITEM_MOE, options, plan);
    if (plan->refused[GH_ITEM_MOE] == 0) {
        return;
    }
    grant(layer, GH_ITEM_MOE_ROUTER, options, plan);
    if (granted(plan, GH_ITEM_MOE_ROUTER)) {
        grant(layer, GH_ITEM_MOE_PREPROCESS, options, plan);
    }
}

static void grant_named(const struct gh_layer *layer,
                        const struct gh_plan_options *options,
                        struct gh_layer_plan *plan)
{
    const uint32_t scope = options->scope;

    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if ((scope & GH_SCOPE(item)) != 0) {
            grant(layer, item, options, plan);
        }
    }
    /* Preprocess continues where the router ends, so it is refused with it. */
    if ((scope & GH_SCOPE(GH_ITEM_MOE_PREPROCESS)) != 0 &&
        plan->refused[GH_ITEM_MOE_ROUTER] != 0) {
        plan->refused[GH_ITEM_MOE_PREPROCESS] |=
            plan->refused[GH_ITEM_MOE_ROUTER];
        plan->granted &= ~GH_SCOPE(GH_ITEM_MOE_PREPROCESS);
    }
}

/* The item that decides about a part. */
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

/* Why a part that was asked for is not captured; 0 if it was not asked for, or
 * is captured. */
static uint32_t part_causes(enum gh_scope_item item,
                            const struct gh_layer_plan *plan)
{
    if (granted(plan, item)) {
        return 0;
    }
    /* The part would have been captured as part of moe, which was refused. */
    if (plan->refused[item] == 0 &&
        (item == GH_ITEM_MOE_ROUTER || item == GH_ITEM_MOE_PREPROCESS)) {
        return plan->refused[GH_ITEM_MOE];
    }
    return plan->refused[item];
}

static bool is_end(gh_part part)
{
    return part == GH_PART_EMBEDDING || part == GH_PART_HEAD;
}

/* What keeps the embedding or the head eager where the part beside it is not.
 * They belong to no layer. */
static uint32_t end_causes(const struct gh_layer *layer, gh_part part,
                           const struct gh_plan_options *options)
{
    uint32_t causes = 0;

    if (options->granularity != GH_GRANULARITY_CHUNK || options->ep_overlap) {
        causes |= gh_cause_bit(GH_CAUSE_END);
    }
    if (!gh_layer_may_capture(layer, part)) {
        causes |= gh_cause_bit(GH_CAUSE_FAMILY);
    }
    return causes;
}

static const char *reason_for(const struct gh_layer *layer, gh_part part,
                              bool graphed, uint32_t causes, uint32_t scope)
{
    if (graphed) {
        return scope == 0 ? WHOLE : is_end(part) ? BESIDE : NAMED;
    }
    return causes != 0 ? gh_cause_why(gh_cause_first(causes), layer)
                       : NOT_NAMED;
}

void gh_rules_layer(const struct gh_layer *layer,
                    const struct gh_plan_options *options,
                    enum gh_before before, struct gh_layer_plan *plan)
{
    const uint32_t scope = options->scope;
    const gh_part *parts;
    const uint32_t n_parts = gh_layer_parts(layer, &parts);

    memset(plan, 0, sizeof(*plan));
    if (scope == 0) {
        grant_whole(layer, options, plan);
    } else {
        grant_named(layer, options, plan);
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        const gh_part part = parts[i];
        const enum gh_scope_item item =
            item_of(gh_layer_beside(layer, part), plan);
        const uint32_t own = is_end(part) && granted(plan, item)
                                 ? end_causes(layer, part, options)
                                 : 0;

        plan->graphed[part] = granted(plan, item) && own == 0;
        plan->causes[part] = part_causes(item, plan) | own;
        plan->reason[part] = reason_for(layer, part, plan->graphed[part],
                                        plan->causes[part], scope);
    }
    gh_rules_modules(layer, options, before, plan);
}
