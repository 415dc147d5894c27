/*
 * rules.h - what a scope may capture of one layer, and why not.
 *
 * Pure functions of a layer's description.  plan.c asks for every layer and
 * weighs the answers: what no layer can have is an error, what some cannot
 * have is narrowed, and said once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_RULES_H
#define GH_PLAN_RULES_H

#include "plan/kinds.h"
#include "plan/model.h"
#include "plan/traits.h"

/* What a user names, in the order of GRAPHHOOKS_SCOPE's words. */
enum gh_scope_item {
    GH_ITEM_ATTN,
    GH_ITEM_MLP,
    GH_ITEM_MOE,
    GH_ITEM_MOE_ROUTER,
    GH_ITEM_MOE_PREPROCESS,
    GH_ITEM_MAMBA,
    GH_ITEM_COUNT
};
#define GH_SCOPE(item) (UINT32_C(1) << (item))

/* In the order of GRAPHHOOKS_GRANULARITY's words. */
enum gh_granularity {
    GH_GRANULARITY_PART = 0,
    GH_GRANULARITY_LAYER = 1,
    GH_GRANULARITY_CHUNK = 2
};

struct gh_plan_options {
    uint32_t scope; /* GH_SCOPE bits; 0: whole layers */
    enum gh_granularity granularity;
    bool ep_overlap;
    bool delay_wgrad; /* weight gradients are passes of their own */
    bool offloads;    /* `offload` stands in for what the layers say */
    uint32_t offload; /* GH_MODULE_*, of layers that have them */
};

/* Why something that was asked for is not done.  Of those that hold at once
 * the first here is the one that is told. */
enum gh_cause {
    GH_CAUSE_NONE,
    /* every word */
    GH_CAUSE_RECOMPUTE_LAYER,
    GH_CAUSE_OFFLOAD_LAYER,
    GH_CAUSE_PACKED,
    GH_CAUSE_FAMILY,
    /* a word */
    GH_CAUSE_ATTN_RANDOM,
    GH_CAUSE_OVERLAP,
    GH_CAUSE_ONE_EXPERT,
    GH_CAUSE_HOST_ROUTER,
    GH_CAUSE_GATHER_TO_HOST,
    GH_CAUSE_DYNAMIC_EXPERTS,
    GH_CAUSE_RECOMPUTE_PARTS,
    GH_CAUSE_MOE_RANDOM,
    GH_CAUSE_RECOMPUTE_MOE,
    GH_CAUSE_COUNTS_TO_HOST,
    /* a module */
    GH_CAUSE_OFFLOAD_ATTN_NORM,
    GH_CAUSE_OFFLOAD_MLP_NORM,
    GH_CAUSE_OFFLOAD_MOE,
    GH_CAUSE_RECOMPUTE_MLP_NORM,
    /* the description itself */
    GH_CAUSE_PROJ_ALONE,
    GH_CAUSE_OFFLOAD_RECOMPUTED,
    GH_CAUSE_SHARED_RECOMPUTED,
    GH_CAUSE_OVERLAP_SHARED,
    GH_CAUSE_OVERLAP_RECOMPUTED,
    GH_CAUSE_OVERLAP_LAYER,
    GH_CAUSE_OVERLAP_NCCLEP,
    GH_CAUSE_COUNT
};

/* Several causes are a set of bits. */
static inline uint32_t gh_cause_bit(enum gh_cause cause)
{
    return cause == GH_CAUSE_NONE ? 0 : UINT32_C(1) << cause;
}

/* The one of a set that is told; GH_CAUSE_NONE of an empty one. */
enum gh_cause gh_cause_first(uint32_t causes);

struct gh_cause_text {
    const char *why;    /* continues "layer 3: " */
    const char *remedy; /* an imperative: undoes this cause */
};
extern const struct gh_cause_text gh_causes[GH_CAUSE_COUNT];

/* The sentence of a cause, which for GH_CAUSE_FAMILY is the family's own. */
const char *gh_cause_why(enum gh_cause cause, const struct gh_layer *layer);

/* The same with the family that says so, and its file as far as there is
 * room. */
void gh_cause_text(enum gh_cause cause, const struct gh_layer *layer,
                   char *text, size_t bytes);

/* What undoes all of a set: who follows it meets no other refusal. */
void gh_cause_remedies(uint32_t causes, char *text, size_t bytes);
/* Adds what may be done in their place. */
void gh_cause_or(uint32_t causes, const char *what, char *text, size_t bytes);

/* One layer under one scope. */
struct gh_layer_plan {
    bool graphed[GH_PART_COUNT];
    const char *reason[GH_PART_COUNT]; /* of the parts that it has */
    uint32_t causes[GH_PART_COUNT];    /* those that keep a part eager */
    uint32_t granted;                  /* GH_SCOPE bits */
    uint32_t refused[GH_ITEM_COUNT];   /* the causes, all of them */
    uint32_t instead; /* where moe is refused: the words that are not */
    uint32_t offload_in_graph, offload_eager, offload_off; /* GH_MODULE_* */
    enum gh_cause offload_cause[2]; /* of what is off, at most two */
    /* The same of recompute; what is off is to be kept instead. */
    uint32_t recompute_in_graph, recompute_eager, recompute_off;
    enum gh_cause recompute_cause;
};

/* The remedies of an item that is refused.  Of moe there may be words to name
 * in its place, up to the part that is meant. */
void gh_item_remedy(const struct gh_layer_plan *plan, enum gh_scope_item item,
                    gh_part part, char *text, size_t bytes);

/* The second half of that alone, added to a text. */
void gh_item_instead(const struct gh_layer_plan *plan, enum gh_scope_item item,
                     gh_part part, char *text, size_t bytes);

const char *gh_item_name(enum gh_scope_item item);

/* Whether a layer has anything that the item names. */
bool gh_item_applies(enum gh_scope_item item, const struct gh_layer *layer);

/* contradictions.c: what a layer asks for that excludes the rest of it or an
 * option, whatever is captured; GH_CAUSE_NONE: nothing. */
enum gh_cause gh_rules_contradiction(const struct gh_layer *layer,
                                     const struct gh_plan_options *options);

/* Contradictions within a scope, whatever the model. */
gh_status gh_rules_check_scope(uint32_t scope, gh_error *err);

/* Where a layer's input comes from. */
enum gh_before {
    GH_BEFORE_EAGER, /* from outside of the model, or an eager part */
    GH_BEFORE_GRAPH  /* out of the graph that the layer before ends with */
};

void gh_rules_layer(const struct gh_layer *layer,
                    const struct gh_plan_options *options,
                    enum gh_before before, struct gh_layer_plan *plan);

/* The end of gh_rules_layer(): offload and recomputation, by what is
 * captured. */
void gh_rules_modules(const struct gh_layer *layer,
                      const struct gh_plan_options *options,
                      enum gh_before before, struct gh_layer_plan *plan);

#endif
