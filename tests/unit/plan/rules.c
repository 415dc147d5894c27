/*
 * Each rule of a scope, with what it takes for it to hold and what does not.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/plan.h"
#include "tap/tap.h"

#include <string.h>

#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define MLP GH_SCOPE(GH_ITEM_MLP)
#define MOE GH_SCOPE(GH_ITEM_MOE)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)
#define WHOLE 0u

#define OVERLAP 1u
#define PARTS 2u

#define PADDED (GH_FEATURE_CAPACITY | GH_FEATURE_PAD)
#define SHARED GH_FEATURE_SHARED_EXPERTS
#define BESIDE (GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP)
#define FREE GH_FEATURE_SYNC_FREE
#define FP8 GH_FEATURE_FP8_PADDING
#define DROP GH_FEATURE_HIDDEN_DROPOUT
#define JITTER GH_FEATURE_ROUTER_JITTER
#define LATENT GH_FEATURE_LATENT
#define WAITS GH_FEATURE_HOST_ROUTER

static void resolve(struct gh_layer layer, uint32_t scope, uint32_t how,
                    struct gh_layer_plan *plan)
{
    const struct gh_plan_options options = {
        .scope = scope,
        .granularity =
            (how & PARTS) != 0 ? GH_GRANULARITY_PART : GH_GRANULARITY_LAYER,
        .ep_overlap = (how & OVERLAP) != 0,
    };

    if (gh_kind_has(layer.kind, GH_PART_MOE_ROUTER) && layer.experts == 0) {
        layer.experts = 8;
    }
    gh_rules_layer(&layer, &options, GH_BEFORE_EAGER, plan);
}

/* What a scope comes to: what is granted, and the refusal of one word. */
static const struct {
    const char *text;
    struct gh_layer layer;
    uint32_t scope, how, granted;
    enum gh_scope_item item;
    enum gh_cause cause;
} decided[] = {
    /* EP overlap captures no exchange, nor what lies between two of them */
    { "a dense layer's mlp under EP overlap",
      { .kind = GH_LAYER_DENSE },
      ATTN | MLP,
      OVERLAP,
      ATTN | MLP,
      GH_ITEM_MLP,
      GH_CAUSE_NONE },
    { "a whole dense layer under EP overlap",
      { .kind = GH_LAYER_DENSE },
      WHOLE,
      OVERLAP,
      ATTN | MLP,
      GH_ITEM_MLP,
      GH_CAUSE_NONE },
    { "the MLP of a hybrid stack under EP overlap",
      { .kind = GH_LAYER_MLP_ONLY },
      WHOLE,
      OVERLAP,
      MLP,
      GH_ITEM_MLP,
      GH_CAUSE_NONE },
    { "moe under EP overlap",
      { .kind = GH_LAYER_MOE, .features = PADDED },
      ATTN | MOE,
      OVERLAP,
      ATTN,
      GH_ITEM_MOE,
      GH_CAUSE_OVERLAP },
    { "a whole layer with experts under EP overlap",
      { .kind = GH_LAYER_MOE, .features = PADDED },
      WHOLE,
      OVERLAP,
      ATTN | ROUTER | PREPROCESS,
      GH_ITEM_MOE,
      GH_CAUSE_OVERLAP },
    { "what comes before the dispatch under EP overlap",
      { .kind = GH_LAYER_MOE, .features = PADDED },
      ATTN | ROUTER | PREPROCESS,
      OVERLAP,
      ATTN | ROUTER | PREPROCESS,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_NONE },
    { "a Mamba layer under EP overlap",
      { .kind = GH_LAYER_MAMBA },
      WHOLE,
      OVERLAP,
      GH_SCOPE(GH_ITEM_MAMBA),
      GH_ITEM_MAMBA,
      GH_CAUSE_NONE },
    /* where the size of the permutation is known before its counts are */
    { "moe_preprocess of a dropless all-to-all",
      { .kind = GH_LAYER_MOE },
      ROUTER | PREPROCESS,
      0,
      ROUTER | PREPROCESS,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_NONE },
    { "moe_preprocess with a capacity and no padding",
      { .kind = GH_LAYER_MOE, .features = GH_FEATURE_CAPACITY },
      ROUTER | PREPROCESS,
      0,
      ROUTER,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_COUNTS_TO_HOST },
    { "moe_preprocess padded for fp8",
      { .kind = GH_LAYER_MOE, .features = FP8 },
      ROUTER | PREPROCESS,
      0,
      ROUTER,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_COUNTS_TO_HOST },
    { "moe_preprocess padded for fp8 and up to a capacity",
      { .kind = GH_LAYER_MOE, .features = FP8 | PADDED },
      ROUTER | PREPROCESS,
      0,
      ROUTER | PREPROCESS,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_NONE },
    { "moe_preprocess padded for fp8, never waiting",
      { .kind = GH_LAYER_MOE, .features = FP8 | FREE },
      ROUTER | PREPROCESS,
      0,
      ROUTER | PREPROCESS,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_NONE },
    { "moe_preprocess padded for fp8 by flex",
      { .kind = GH_LAYER_MOE,
        .features = FP8,
        .dispatcher = GH_DISPATCHER_FLEX },
      ROUTER | PREPROCESS,
      0,
      ROUTER | PREPROCESS,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_NONE },
    /* experts */
    { "moe that is dropless",
      { .kind = GH_LAYER_MOE },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_DYNAMIC_EXPERTS },
    { "moe with a capacity and no padding",
      { .kind = GH_LAYER_MOE, .features = GH_FEATURE_CAPACITY },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_DYNAMIC_EXPERTS },
    { "moe with an all-gather, padded",
      { .kind = GH_LAYER_MOE,
        .features = PADDED,
        .dispatcher = GH_DISPATCHER_ALLGATHER },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_GATHER_TO_HOST },
    { "a whole layer with an all-gather, padded",
      { .kind = GH_LAYER_MOE,
        .features = PADDED,
        .dispatcher = GH_DISPATCHER_ALLGATHER },
      WHOLE,
      0,
      ATTN | ROUTER | PREPROCESS,
      GH_ITEM_MOE,
      GH_CAUSE_GATHER_TO_HOST },
    { "moe with an all-gather that never waits",
      { .kind = GH_LAYER_MOE,
        .features = FREE,
        .dispatcher = GH_DISPATCHER_ALLGATHER },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "a router that waits",
      { .kind = GH_LAYER_MOE, .features = WAITS },
      ATTN | ROUTER | PREPROCESS,
      0,
      ATTN,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_HOST_ROUTER },
    { "what follows a router that waits",
      { .kind = GH_LAYER_MOE, .features = WAITS },
      ROUTER | PREPROCESS,
      0,
      0,
      GH_ITEM_MOE_PREPROCESS,
      GH_CAUSE_HOST_ROUTER },
    { "experts behind a router that waits",
      { .kind = GH_LAYER_MOE, .features = WAITS | FREE },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_HOST_ROUTER },
    { "a whole layer with a router that waits",
      { .kind = GH_LAYER_MOE, .features = WAITS | PADDED },
      WHOLE,
      0,
      ATTN,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_HOST_ROUTER },
    { "packed sequences",
      { .features = GH_FEATURE_PACKED },
      ATTN | MLP,
      0,
      0,
      GH_ITEM_MLP,
      GH_CAUSE_PACKED },
    { "packed sequences, padded to a fixed number",
      { .features = GH_FEATURE_PACKED | GH_FEATURE_PACKED_PAD },
      ATTN | MLP,
      0,
      ATTN | MLP,
      GH_ITEM_ATTN,
      GH_CAUSE_NONE },
    { "moe that never waits",
      { .kind = GH_LAYER_MOE, .features = FREE },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "two experts",
      { .kind = GH_LAYER_MOE, .features = PADDED, .experts = 2 },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "moe of one dropless expert",
      { .kind = GH_LAYER_MOE, .experts = 1 },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_ONE_EXPERT },
    { "moe of one expert with a capacity and padding",
      { .kind = GH_LAYER_MOE, .features = PADDED, .experts = 1 },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "moe_router of one expert that never waits",
      { .kind = GH_LAYER_MOE, .features = FREE, .experts = 1 },
      ROUTER,
      0,
      ROUTER,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_NONE },
    { "moe_router of one expert",
      { .kind = GH_LAYER_MOE, .experts = 1 },
      ROUTER,
      0,
      0,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_ONE_EXPERT },
    /* what is recomputed lies in one graph, or in none */
    { "experts recomputed in one graph",
      { .kind = GH_LAYER_MOE, .features = PADDED, .recompute = GH_MODULE_MOE },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "experts recomputed in a graph for each part",
      { .kind = GH_LAYER_MOE, .features = PADDED, .recompute = GH_MODULE_MOE },
      MOE,
      PARTS,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_RECOMPUTE_PARTS },
    { "experts of a graph for each part",
      { .kind = GH_LAYER_MOE,
        .features = PADDED,
        .recompute = GH_MODULE_MOE_ACT },
      MOE,
      PARTS,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "experts recomputed across the end of a graph",
      { .kind = GH_LAYER_MOE, .recompute = GH_MODULE_MOE },
      ATTN | ROUTER,
      0,
      ATTN,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_RECOMPUTE_MOE },
    { "a whole layer whose experts are recomputed",
      { .kind = GH_LAYER_MOE, .recompute = GH_MODULE_MOE },
      WHOLE,
      0,
      ATTN,
      GH_ITEM_MOE_ROUTER,
      GH_CAUSE_RECOMPUTE_MOE },
    { "a recomputed layer",
      { .kind = GH_LAYER_MAMBA, .recompute = GH_MODULE_LAYER },
      WHOLE,
      0,
      0,
      GH_ITEM_MAMBA,
      GH_CAUSE_RECOMPUTE_LAYER },
    { "an offloaded layer",
      { .kind = GH_LAYER_MAMBA, .offload = GH_MODULE_LAYER },
      WHOLE,
      0,
      0,
      GH_ITEM_MAMBA,
      GH_CAUSE_OFFLOAD_LAYER },
    /* random numbers of what is recomputed */
    { "attention dropout, recomputed",
      { .features = GH_FEATURE_ATTN_DROPOUT, .recompute = GH_MODULE_CORE_ATTN },
      WHOLE,
      0,
      MLP,
      GH_ITEM_ATTN,
      GH_CAUSE_ATTN_RANDOM },
    { "attention dropout, of which something else is recomputed",
      { .features = GH_FEATURE_ATTN_DROPOUT, .recompute = GH_MODULE_ATTN_PROJ },
      WHOLE,
      0,
      ATTN | MLP,
      GH_ITEM_ATTN,
      GH_CAUSE_NONE },
    { "an MLP with dropout, recomputed",
      { .features = DROP, .recompute = GH_MODULE_MLP },
      WHOLE,
      0,
      ATTN | MLP,
      GH_ITEM_MLP,
      GH_CAUSE_NONE },
    { "an MLP with dropout whose norm is recomputed",
      { .features = DROP, .recompute = GH_MODULE_MLP_NORM },
      WHOLE,
      0,
      ATTN | MLP,
      GH_ITEM_MLP,
      GH_CAUSE_NONE },
    { "experts with dropout, recomputed",
      { .kind = GH_LAYER_MOE,
        .features = PADDED | DROP,
        .recompute = GH_MODULE_MOE },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
    { "experts with jitter, recomputed",
      { .kind = GH_LAYER_MOE,
        .features = PADDED | JITTER,
        .recompute = GH_MODULE_MOE },
      MOE,
      0,
      0,
      GH_ITEM_MOE,
      GH_CAUSE_MOE_RANDOM },
    { "experts with jitter of which the activation is recomputed",
      { .kind = GH_LAYER_MOE,
        .features = PADDED | JITTER,
        .recompute = GH_MODULE_MOE_ACT },
      MOE,
      0,
      MOE,
      GH_ITEM_MOE,
      GH_CAUSE_NONE },
};

static void test_what_is_granted_and_why_not(void)
{
    for (size_t i = 0; i < sizeof(decided) / sizeof(decided[0]); i++) {
        struct gh_layer_plan plan;

        resolve(decided[i].layer, decided[i].scope, decided[i].how, &plan);
        is_int(plan.granted, decided[i].granted, "%s: what is granted",
               decided[i].text);
        is_int(gh_cause_first(plan.refused[decided[i].item]), decided[i].cause,
               "%s: %s", decided[i].text, gh_causes[decided[i].cause].why);
    }
}

/* What becomes of the modules of a layer: in the graph, beside it, off. */
#define ATTN_NORM GH_MODULE_ATTN_NORM
#define CORE GH_MODULE_CORE_ATTN
#define NORM GH_MODULE_MLP_NORM
#define FC1 GH_MODULE_EXPERT_FC1

static const struct {
    const char *text;
    gh_layer_kind kind;
    uint32_t features, offload, scope, how, in_graph, beside, off;
} offloaded[] = {
    { "nothing is captured", GH_LAYER_DENSE, 0, ATTN_NORM | NORM, MOE, 0, 0,
      ATTN_NORM | NORM, 0 },
    { "a whole dense layer under EP overlap", GH_LAYER_DENSE, 0,
      ATTN_NORM | NORM, WHOLE, OVERLAP, 0, 0, ATTN_NORM | NORM },
    { "attention is captured", GH_LAYER_DENSE, 0, ATTN_NORM | CORE, ATTN, 0,
      CORE, 0, ATTN_NORM },
    { "attention is eager", GH_LAYER_DENSE, 0, ATTN_NORM | CORE, MLP, 0, 0,
      ATTN_NORM | CORE, 0 },
    { "the norm follows a graph", GH_LAYER_DENSE, 0, NORM, ATTN, 0, 0, 0,
      NORM },
    { "the norm begins a graph", GH_LAYER_DENSE, 0, NORM, MLP, 0, 0, 0, NORM },
    { "the norm is inside a graph", GH_LAYER_DENSE, 0, NORM, ATTN | MLP, 0,
      NORM, 0, 0 },
    { "a graph for each part", GH_LAYER_DENSE, 0, NORM, ATTN | MLP, PARTS, 0, 0,
      NORM },
    { "an MLP that is a layer", GH_LAYER_MLP_ONLY, 0, NORM | GH_MODULE_MLP, MLP,
      0, GH_MODULE_MLP, 0, NORM },
    { "experts after a graph", GH_LAYER_MOE, 0, NORM | FC1, ATTN, 0, 0, FC1,
      NORM },
    { "a router after eager attention", GH_LAYER_MOE, 0, NORM | FC1, ROUTER, 0,
      0, FC1, NORM },
    { "a router in the graph of the attention", GH_LAYER_MOE, 0, NORM | FC1,
      ATTN | ROUTER | PREPROCESS, 0, 0, FC1, NORM },
    { "shared experts in the router's graph", GH_LAYER_MOE, SHARED,
      GH_MODULE_SHARED_EXPERTS, ROUTER, 0, GH_MODULE_SHARED_EXPERTS, 0, 0 },
    { "shared experts beside the dispatch", GH_LAYER_MOE, BESIDE,
      GH_MODULE_SHARED_EXPERTS, ROUTER, 0, 0, GH_MODULE_SHARED_EXPERTS, 0 },
    { "captured experts", GH_LAYER_MOE, PADDED | SHARED,
      FC1 | GH_MODULE_MOE | GH_MODULE_MOE_ACT | GH_MODULE_SHARED_EXPERTS |
          NORM | CORE,
      ATTN | MOE, 0, CORE, 0,
      FC1 | GH_MODULE_MOE | GH_MODULE_MOE_ACT | GH_MODULE_SHARED_EXPERTS |
          NORM },
};

static void test_what_is_offloaded(void)
{
    for (size_t i = 0; i < sizeof(offloaded) / sizeof(offloaded[0]); i++) {
        const struct gh_layer layer = { .kind = offloaded[i].kind,
                                        .features = offloaded[i].features,
                                        .offload = offloaded[i].offload };
        struct gh_layer_plan plan;

        resolve(layer, offloaded[i].scope, offloaded[i].how, &plan);
        is_int(plan.offload_in_graph, offloaded[i].in_graph,
               "%s: what is offloaded in the graph", offloaded[i].text);
        is_int(plan.offload_eager, offloaded[i].beside, "%s: what beside it",
               offloaded[i].text);
        is_int(plan.offload_off, offloaded[i].off, "%s: and what not at all",
               offloaded[i].text);
        ok((plan.offload_off != 0) == (plan.offload_cause[0] != GH_CAUSE_NONE),
           "%s: with a cause where something is off", offloaded[i].text);
    }
}

static void test_two_modules_are_off_for_two_causes(void)
{
    const struct gh_layer layer = { .kind = GH_LAYER_MOE,
                                    .offload = ATTN_NORM | NORM };
    struct gh_layer_plan plan;

    resolve(layer, ATTN | ROUTER, 0, &plan);
    is_int(plan.offload_cause[0], GH_CAUSE_OFFLOAD_ATTN_NORM,
           "attn_norm is off for what the attention norm reads");
    is_int(plan.offload_cause[1], GH_CAUSE_OFFLOAD_MLP_NORM,
           "and mlp_norm for what the MLP norm does");
}

/* Whether recomputing mlp_norm frees anything. */
static const struct {
    const char *text;
    gh_layer_kind kind;
    uint32_t features;
    gh_dispatcher dispatcher;
    uint32_t scope, how;
    bool kept;
} recomputed[] = {
    { "a dense layer's MLP", GH_LAYER_DENSE, 0, 0, MLP, 0, false },
    { "an eager router", GH_LAYER_MOE, 0, 0, ATTN, 0, false },
    { "a router alone", GH_LAYER_MOE, 0, 0, ROUTER, 0, true },
    { "a router alone, padded", GH_LAYER_MOE, PADDED, 0, ATTN | ROUTER, 0,
      true },
    { "a router that permutes", GH_LAYER_MOE, SHARED, 0, ROUTER | PREPROCESS, 0,
      false },
    { "a router whose dispatch gathers", GH_LAYER_MOE, 0,
      GH_DISPATCHER_ALLGATHER, ROUTER | PREPROCESS, 0, true },
    { "a router with a flex dispatcher", GH_LAYER_MOE, 0, GH_DISPATCHER_FLEX,
      ROUTER | PREPROCESS, 0, true },
    { "latent experts with a flex dispatcher", GH_LAYER_MOE, LATENT,
      GH_DISPATCHER_FLEX, ROUTER | PREPROCESS, 0, false },
    { "latent experts whose dispatch gathers", GH_LAYER_MOE, LATENT,
      GH_DISPATCHER_ALLGATHER, ROUTER | PREPROCESS, 0, false },
    { "latent experts whose projection is eager", GH_LAYER_MOE, LATENT,
      GH_DISPATCHER_FLEX, ROUTER, 0, true },
    { "latent experts, shared ones beside the dispatch", GH_LAYER_MOE,
      LATENT | BESIDE, GH_DISPATCHER_FLEX, ROUTER | PREPROCESS, 0, true },
    { "shared experts beside the dispatch", GH_LAYER_MOE, BESIDE, 0,
      ROUTER | PREPROCESS, 0, true },
    { "a permutation in a graph of its own", GH_LAYER_MOE, 0, 0,
      ROUTER | PREPROCESS, PARTS, true },
    { "captured experts", GH_LAYER_MOE, PADDED | BESIDE, GH_DISPATCHER_FLEX,
      MOE, 0, false },
    { "captured experts, a graph for each part", GH_LAYER_MOE, PADDED, 0, MOE,
      PARTS, true },
    { "experts that are a layer", GH_LAYER_MOE_ONLY, 0, 0, ROUTER, 0, true },
};

static void test_what_is_not_worth_recomputing(void)
{
    for (size_t i = 0; i < sizeof(recomputed) / sizeof(recomputed[0]); i++) {
        struct gh_layer layer = { .kind = recomputed[i].kind,
                                  .features = recomputed[i].features,
                                  .dispatcher = recomputed[i].dispatcher,
                                  .recompute = NORM | GH_MODULE_MOE_ACT };
        struct gh_layer_plan plan;

        resolve(layer, recomputed[i].scope, recomputed[i].how, &plan);
        is_int(plan.recompute_off, recomputed[i].kept ? NORM : 0,
               "%s: mlp_norm is %s", recomputed[i].text,
               recomputed[i].kept ? "to be kept" : "recomputed");
        is_int(plan.recompute_cause,
               recomputed[i].kept ? GH_CAUSE_RECOMPUTE_MLP_NORM : GH_CAUSE_NONE,
               "%s: for its reason", recomputed[i].text);
        layer.recompute = GH_MODULE_MOE_ACT;
        resolve(layer, recomputed[i].scope, recomputed[i].how, &plan);
        is_int(plan.recompute_off, 0, "%s: nothing where it is not asked",
               recomputed[i].text);
    }
}

/* What a layer asks for that excludes the rest of it. */
static const struct {
    const char *text;
    struct gh_layer layer;
    bool overlap;
    enum gh_cause cause;
} contradictions[] = {
    { "attn_proj offloaded alone",
      { .offload = GH_MODULE_ATTN_PROJ },
      false,
      GH_CAUSE_PROJ_ALONE },
    { "attn_proj offloaded with core_attn",
      { .offload = GH_MODULE_ATTN_PROJ | CORE },
      false,
      GH_CAUSE_NONE },
    { "expert_fc1 offloaded from a recomputed moe",
      { .recompute = GH_MODULE_MOE, .offload = FC1 },
      false,
      GH_CAUSE_OFFLOAD_RECOMPUTED },
    { "moe_act offloaded from a recomputed moe",
      { .recompute = GH_MODULE_MOE, .offload = GH_MODULE_MOE_ACT },
      false,
      GH_CAUSE_OFFLOAD_RECOMPUTED },
    { "expert_fc1 offloaded, moe_act recomputed",
      { .recompute = GH_MODULE_MOE_ACT, .offload = FC1 },
      false,
      GH_CAUSE_NONE },
    { "shared experts beside the dispatch, recomputed",
      { .features = BESIDE, .recompute = GH_MODULE_SHARED_EXPERTS },
      false,
      GH_CAUSE_SHARED_RECOMPUTED },
    { "shared experts with the router, recomputed",
      { .features = SHARED, .recompute = GH_MODULE_SHARED_EXPERTS },
      false,
      GH_CAUSE_NONE },
    { "shared experts beside the dispatch",
      { .features = BESIDE },
      false,
      GH_CAUSE_NONE },
    { "shared experts beside the dispatch under EP overlap",
      { .features = BESIDE },
      true,
      GH_CAUSE_OVERLAP_SHARED },
    { "shared experts with the router under EP overlap",
      { .features = SHARED },
      true,
      GH_CAUSE_NONE },
    { "a recomputed moe",
      { .recompute = GH_MODULE_MOE },
      false,
      GH_CAUSE_NONE },
    { "a recomputed moe under EP overlap",
      { .recompute = GH_MODULE_MOE },
      true,
      GH_CAUSE_OVERLAP_RECOMPUTED },
    { "a recomputed moe_act under EP overlap",
      { .recompute = GH_MODULE_MOE_ACT },
      true,
      GH_CAUSE_NONE },
    { "expert_fc1 offloaded from ncclep under EP overlap",
      { .backend = GH_BACKEND_NCCLEP, .offload = FC1 },
      true,
      GH_CAUSE_OVERLAP_NCCLEP },
    { "expert_fc1 offloaded from ncclep",
      { .backend = GH_BACKEND_NCCLEP, .offload = FC1 },
      false,
      GH_CAUSE_NONE },
    { "expert_fc1 offloaded from deepep under EP overlap",
      { .backend = GH_BACKEND_DEEPEP, .offload = FC1 },
      true,
      GH_CAUSE_NONE },
};

static void test_contradictions(void)
{
    for (size_t i = 0; i < sizeof(contradictions) / sizeof(contradictions[0]);
         i++) {
        const struct gh_plan_options options = {
            .ep_overlap = contradictions[i].overlap
        };

        is_int(gh_rules_contradiction(&contradictions[i].layer, &options),
               contradictions[i].cause, "%s: %s", contradictions[i].text,
               contradictions[i].cause == GH_CAUSE_NONE ? "may be"
                                                        : "is refused");
    }
}

/* ---- remedies ------------------------------------------------------------ */

/* Does as the remedy of a cause says. */
static void follow(enum gh_cause cause, struct gh_layer *layer,
                   struct gh_plan_options *options)
{
    switch (cause) {
    case GH_CAUSE_RECOMPUTE_LAYER:
        layer->recompute &= ~(uint32_t)GH_MODULE_LAYER;
        break;
    case GH_CAUSE_OFFLOAD_LAYER:
        layer->offload = 0;
        break;
    case GH_CAUSE_ATTN_RANDOM:
        layer->features &= ~(uint32_t)GH_FEATURE_ATTN_DROPOUT;
        break;
    case GH_CAUSE_MOE_RANDOM:
        layer->features &= ~(uint32_t)JITTER;
        break;
    case GH_CAUSE_OVERLAP:
        options->ep_overlap = false;
        break;
    case GH_CAUSE_PACKED:
        layer->features |= GH_FEATURE_PACKED_PAD;
        break;
    case GH_CAUSE_HOST_ROUTER:
        layer->features &= ~(uint32_t)WAITS;
        break;
    case GH_CAUSE_GATHER_TO_HOST:
        layer->features |= FREE;
        break;
    case GH_CAUSE_ONE_EXPERT:
    case GH_CAUSE_DYNAMIC_EXPERTS:
    case GH_CAUSE_COUNTS_TO_HOST:
        layer->features |= PADDED;
        break;
    case GH_CAUSE_RECOMPUTE_PARTS:
    case GH_CAUSE_RECOMPUTE_MOE:
        layer->recompute &= ~(uint32_t)GH_MODULE_MOE;
        layer->recompute |= GH_MODULE_MOE_ACT;
        break;
    default:
        break;
    }
}

/* The item once all of its remedies are followed. */
static bool is_undone(struct gh_layer layer, struct gh_plan_options options,
                      enum gh_scope_item item, const struct gh_layer_plan *plan)
{
    uint32_t causes = plan->refused[item];
    struct gh_layer_plan then;

    while (causes != 0) {
        const enum gh_cause cause = gh_cause_first(causes);

        follow(cause, &layer, &options);
        causes &= ~gh_cause_bit(cause);
    }
    gh_rules_layer(&layer, &options, GH_BEFORE_EAGER, &then);
    return then.refused[item] == 0;
}

/* Counts items that are refused, and those whose remedies undo that. */
static void count_undone(const struct gh_layer *layer,
                         const struct gh_plan_options *given, uint32_t *refused,
                         uint32_t *undone)
{
    static const uint32_t words[] = { ATTN, MLP, MOE, ROUTER,
                                      ROUTER | PREPROCESS };

    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        struct gh_plan_options options = *given;
        struct gh_layer_plan plan;

        options.scope = words[w];
        gh_rules_layer(layer, &options, GH_BEFORE_EAGER, &plan);
        for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
            if (plan.refused[item] != 0) {
                ++*refused;
                *undone += is_undone(*layer, options, item, &plan);
            }
        }
    }
}

/* Every set of these, of every kind of layer, under every option. */
static void test_remedies_lead_to_no_other_refusal(void)
{
    static const uint32_t features[] = {
        GH_FEATURE_CAPACITY,     GH_FEATURE_PAD, FREE,  FP8,
        GH_FEATURE_ATTN_DROPOUT, DROP,           JITTER
    };
    static const uint32_t modules[] = { 0, GH_MODULE_LAYER, GH_MODULE_MOE,
                                        GH_MODULE_CORE_ATTN | GH_MODULE_MLP };
    const uint32_t n_features = sizeof(features) / sizeof(features[0]);
    uint32_t refused = 0, undone = 0;

    for (uint32_t bits = 0; bits < 1u << n_features; bits++) {
        for (uint32_t n = 0; n < GH_KIND_COUNT * 4 * 3 * 2 * 4 * 2; n++) {
            const struct gh_plan_options options = {
                .granularity =
                    n & 1 ? GH_GRANULARITY_PART : GH_GRANULARITY_LAYER,
                .ep_overlap = (n & 2) != 0,
            };
            struct gh_layer layer = {
                .kind = n / 4 % GH_KIND_COUNT,
                .recompute = modules[n / 24 % 4],
                .dispatcher = n / 96 % 3,
                .experts = n / 288 % 2 != 0 ? 8 : 1,
                .offload = n / 576 % 2 != 0 ? GH_MODULE_LAYER : 0,
            };

            for (uint32_t i = 0; i < n_features; i++) {
                layer.features |= bits & 1u << i ? features[i] : 0;
            }
            count_undone(&layer, &options, &refused, &undone);
        }
    }
    ok(refused > 10000, "%u refusals of every kind of layer", refused);
    is_int(undone, refused, "each is undone by its own remedy");
}

/* What stands for moe where that is refused has to be possible. */
static const struct {
    const char *text;
    struct gh_layer layer;
    uint32_t how;
    gh_part part;
    const char *remedy;
} remedies[] = {
    { "dropless experts",
      { .kind = GH_LAYER_MOE },
      0,
      GH_PART_MOE_ROUTER,
      "set a capacity and pad to it, or name moe_router instead of moe" },
    { "dropless experts under EP overlap",
      { .kind = GH_LAYER_MOE },
      OVERLAP,
      GH_PART_MOE_ROUTER,
      "switch off the overlap, and set a capacity and pad to it; or name "
      "moe_router instead of moe" },
    { "the preprocess of dropless experts",
      { .kind = GH_LAYER_MOE },
      0,
      GH_PART_MOE_PREPROCESS,
      "set a capacity and pad to it, or name moe_router and moe_preprocess "
      "instead of moe" },
    { "a preprocess that tells the host its counts",
      { .kind = GH_LAYER_MOE, .features = FP8 },
      0,
      GH_PART_MOE_PREPROCESS,
      "set a capacity and pad to it" },
    { "the experts themselves",
      { .kind = GH_LAYER_MOE },
      0,
      GH_PART_MOE_EXPERTS,
      "set a capacity and pad to it" },
    { "experts whose router cannot be had either",
      { .kind = GH_LAYER_MOE, .recompute = GH_MODULE_MOE },
      0,
      GH_PART_MOE_ROUTER,
      "set a capacity and pad to it" },
};

static void test_what_stands_for_moe(void)
{
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++) {
        struct gh_layer_plan plan;
        char text[256];

        resolve(remedies[i].layer, MOE, remedies[i].how, &plan);
        gh_item_remedy(&plan, GH_ITEM_MOE, remedies[i].part, text,
                       sizeof(text));
        is_str(text, remedies[i].remedy, "%s", remedies[i].text);
    }
}

int main(void)
{
    test_contradictions();
    test_what_is_granted_and_why_not();
    test_remedies_lead_to_no_other_refusal();
    test_what_stands_for_moe();
    test_what_is_offloaded();
    test_two_modules_are_off_for_two_causes();
    test_what_is_not_worth_recomputing();
    return done_testing();
}
