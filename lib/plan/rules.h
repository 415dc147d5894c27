/*
 * rules.h - what a scope may capture of one layer, and why not.
 *
 * These are pure functions of a layer's description.  plan.c asks for every
 * layer and weighs the answers: a word that no layer can have is an error, and
 * a word that some layers cannot have is narrowed to the others, with one
 * note.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_RULES_H
#define GH_PLAN_RULES_H

#include "plan/kinds.h"
#include "plan/model.h"
#include "plan/traits.h"

/* The words of a scope, in the order of GRAPHHOOKS_SCOPE's words. */
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
    bool offloads;    /* `offload` replaces what the layers say */
    uint32_t offload; /* GH_MODULE_*, of layers that have them */
};

/* Why something that was asked for is not done.  If several causes hold at
 * once, the first in this order is told. */
enum gh_cause {
    GH_CAUSE_NONE,
    /* against every word */
    GH_CAUSE_RECOMPUTE_LAYER,
    GH_CAUSE_OFFLOAD_LAYER,
    GH_CAUSE_PACKED,
    GH_CAUSE_FAMILY,
    /* against the embedding and the head */
    GH_CAUSE_END,
    /* against one word */
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
    /* against one module */
    GH_CAUSE_OFFLOAD_ATTN_NORM,
    GH_CAUSE_OFFLOAD_MLP_NORM,
    GH_CAUSE_OFFLOAD_MOE,
    GH_CAUSE_RECOMPUTE_MLP_NORM,
    /* against the description itself */
    GH_CAUSE_PROJ_ALONE,
    GH_CAUSE_OFFLOAD_RECOMPUTED,
    GH_CAUSE_SHARED_RECOMPUTED,
    GH_CAUSE_OVERLAP_SHARED,
    GH_CAUSE_OVERLAP_RECOMPUTED,
    GH_CAUSE_OVERLAP_LAYER,
    GH_CAUSE_OVERLAP_NCCLEP,
    GH_CAUSE_COUNT
};

/* A set of causes has a bit for each of them. */
static inline uint32_t gh_cause_bit(enum gh_cause cause)
{
    return cause == GH_CAUSE_NONE ? 0 : UINT32_C(1) << cause;
}

/* The cause of a set that is told; GH_CAUSE_NONE if the set is empty. */
enum gh_cause gh_cause_first(uint32_t causes);

struct gh_cause_text {
    const char *why;    /* follows "layer 3: " */
    const char *remedy; /* an imperative that undoes the cause */
};
extern const struct gh_cause_text gh_causes[GH_CAUSE_COUNT];

/* The sentence of a cause.  GH_CAUSE_FAMILY has the family's own sentence. */
const char *gh_cause_why(enum gh_cause cause, const struct gh_layer *layer);

/* Writes the sentence of a cause.  For GH_CAUSE_FAMILY the family comes first,
 * with as much of its file's name as there is room for. */
void gh_cause_text(enum gh_cause cause, const struct gh_layer *layer,
                   char *text, size_t bytes);

/* Writes what undoes all causes of a set, so that whoever follows it meets no
 * other refusal. */
void gh_cause_remedies(uint32_t causes, char *text, size_t bytes);
/* Adds "or", and what may be done instead. */
void gh_cause_or(uint32_t causes, const char *what, char *text, size_t bytes);

/* One layer under one scope. */
struct gh_layer_plan {
    bool graphed[GH_PART_COUNT];
    const char *reason[GH_PART_COUNT]; /* set for the parts it has */
    uint32_t causes[GH_PART_COUNT];    /* that keep a part eager */
    uint32_t granted;                  /* GH_SCOPE bits */
    uint32_t refused[GH_ITEM_COUNT];   /* all causes of the refusal */
    uint32_t instead; /* where moe is refused: words to name instead */
    uint32_t offload_in_graph, offload_eager, offload_off; /* GH_MODULE_* */
    enum gh_cause offload_cause[2]; /* of offload_off, at most two */
    /* The same for recompute.  The output of a module in recompute_off has to
     * be kept. */
    uint32_t recompute_in_graph, recompute_eager, recompute_off;
    enum gh_cause recompute_cause;
};

/* Writes what undoes the refusal of an item.  If that is moe, it adds the words
 * to name instead so that `part` is captured, where there are any. */
void gh_item_remedy(const struct gh_layer_plan *plan, enum gh_scope_item item,
                    gh_part part, char *text, size_t bytes);

/* Adds to a text only the words to name instead of moe. */
void gh_item_instead(const struct gh_layer_plan *plan, enum gh_scope_item item,
                     gh_part part, char *text, size_t bytes);

const char *gh_item_name(enum gh_scope_item item);

/* Whether a layer has anything that the item names. */
bool gh_item_applies(enum gh_scope_item item, const struct gh_layer *layer);

/* contradictions.c: a request of the layer that excludes another one of it, or
 * an option, whatever is captured.  GH_CAUSE_NONE: there is none. */
enum gh_cause gh_rules_contradiction(const struct gh_layer *layer,
                                     const struct gh_plan_options *options);

/* Refuses words of a scope that exclude each other in any model. */
gh_status gh_rules_check_scope(uint32_t scope, gh_error *err);

/* Where a layer's input comes from. */
enum gh_before {
    GH_BEFORE_EAGER, /* an eager part, or outside of the model */
    GH_BEFORE_GRAPH  /* the graph that the layer before ends with */
};

void gh_rules_layer(const struct gh_layer *layer,
                    const struct gh_plan_options *options,
                    enum gh_before before, struct gh_layer_plan *plan);

/* The last step of gh_rules_layer(): decides about offload and recomputation,
 * now that it is known what is captured. */
void gh_rules_modules(const struct gh_layer *layer,
                      const struct gh_plan_options *options,
                      enum gh_before before, struct gh_layer_plan *plan);

#endif
