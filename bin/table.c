/*
 * table.c - `graphhooks plan --table`: the rules as doc/scopes.md has them.
 *
 * The rules themselves are asked, so that the document cannot differ.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan.h"

#include <stdio.h>
#include <string.h>

#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define MLP GH_SCOPE(GH_ITEM_MLP)
#define MOE GH_SCOPE(GH_ITEM_MOE)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)
#define MAMBA GH_SCOPE(GH_ITEM_MAMBA)

/* A layer as a row of either table has it. */
struct sample {
    const char *text;
    struct gh_layer layer;
    uint32_t how;   /* OVERLAP: with EP overlap; PARTS: granularity part;
                       AFTER_GRAPH: the layer before ends in a graph */
    uint32_t scope; /* of a refusal */
};
#define OVERLAP 1u
#define PARTS 2u
#define AFTER_GRAPH 4u

#define MOE_LAYER(...) \
    { \
        .kind = GH_LAYER_MOE, .experts = 8, __VA_ARGS__ \
    }
#define PADDED .features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD
#define BESIDE .features = GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP

static const struct sample kinds[] = {
    { .text = "`dense`", .layer = { .kind = GH_LAYER_DENSE } },
    { .text = "`dense`, ep overlap",
      .layer = { .kind = GH_LAYER_DENSE },
      .how = OVERLAP },
    { .text = "`moe`, capacity and pad, alltoall or flex",
      .layer = MOE_LAYER(PADDED) },
    { .text = "`moe`, capacity and pad, allgather",
      .layer = MOE_LAYER(PADDED, .dispatcher = GH_DISPATCHER_ALLGATHER) },
    { .text = "`moe`, capacity and pad, alltoall or flex, ep overlap",
      .layer = MOE_LAYER(PADDED),
      .how = OVERLAP },
    { .text = "`moe`, sync_free",
      .layer = MOE_LAYER(.features = GH_FEATURE_SYNC_FREE,
                         .dispatcher = GH_DISPATCHER_FLEX) },
    { .text = "`moe`, dropless, alltoall or flex",
      .layer = MOE_LAYER(.features = 0) },
    { .text = "`moe`, dropless, allgather",
      .layer = MOE_LAYER(.dispatcher = GH_DISPATCHER_ALLGATHER) },
    { .text = "`moe`, host_router",
      .layer = MOE_LAYER(.features =
                             GH_FEATURE_HOST_ROUTER | GH_FEATURE_SYNC_FREE) },
    { .text = "`moe`, capacity without pad, alltoall",
      .layer = MOE_LAYER(.features = GH_FEATURE_CAPACITY) },
    { .text = "`moe`, fp8_padding, alltoall",
      .layer = MOE_LAYER(.features = GH_FEATURE_FP8_PADDING) },
    { .text = "`moe`, fp8_padding, flex",
      .layer = MOE_LAYER(.features = GH_FEATURE_FP8_PADDING,
                         .dispatcher = GH_DISPATCHER_FLEX) },
    { .text = "`mamba`", .layer = { .kind = GH_LAYER_MAMBA } },
    { .text = "`attn_only`", .layer = { .kind = GH_LAYER_ATTN_ONLY } },
    { .text = "`mlp_only`", .layer = { .kind = GH_LAYER_MLP_ONLY } },
    { .text = "`moe_only`, capacity and pad, alltoall or flex",
      .layer = { .kind = GH_LAYER_MOE_ONLY, .experts = 8, PADDED } },
    { .text = "`moe_only`, dropless, alltoall or flex",
      .layer = { .kind = GH_LAYER_MOE_ONLY, .experts = 8 } },
};

/* A family's own sentence stands in the place of this one. */
static const struct gh_traits held_back = {
    .layer = { .n_parts = 1,
               .parts = { GH_PART_ATTN },
               .why_not = "what its family says of it" },
};

/* One for each refusal there is. */
static const struct sample refusals[] = {
    { "recompute `layer`", { .recompute = GH_MODULE_LAYER }, 0, ATTN },
    { "offload `layer`", { .offload = GH_MODULE_LAYER }, 0, ATTN },
    { "packed, without packed_pad",
      { .features = GH_FEATURE_PACKED },
      0,
      ATTN },
    { "attn_dropout, recompute `core_attn`",
      { .features = GH_FEATURE_ATTN_DROPOUT, .recompute = GH_MODULE_CORE_ATTN },
      0,
      ATTN },
    { "1 expert, neither capacity and pad, nor sync_free",
      { .kind = GH_LAYER_MOE, .experts = 1 },
      0,
      MOE },
    { "1 expert, neither capacity and pad, nor sync_free",
      { .kind = GH_LAYER_MOE, .experts = 1 },
      0,
      ROUTER },
    { "host_router",
      MOE_LAYER(.features = GH_FEATURE_HOST_ROUTER | GH_FEATURE_SYNC_FREE), 0,
      MOE },
    { "host_router", MOE_LAYER(.features = GH_FEATURE_HOST_ROUTER), 0, ROUTER },
    { "allgather, without sync_free",
      MOE_LAYER(PADDED, .dispatcher = GH_DISPATCHER_ALLGATHER), 0, MOE },
    { "alltoall or flex, neither capacity and pad, nor sync_free",
      MOE_LAYER(.features = 0), 0, MOE },
    { "ep overlap", MOE_LAYER(PADDED), OVERLAP, MOE },
    { "router_jitter, recompute `moe`",
      MOE_LAYER(.features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD |
                            GH_FEATURE_ROUTER_JITTER,
                .recompute = GH_MODULE_MOE),
      0, MOE },
    { "recompute `moe`", MOE_LAYER(.recompute = GH_MODULE_MOE), 0, ROUTER },
    { "recompute `moe`, granularity `part`",
      MOE_LAYER(PADDED, .recompute = GH_MODULE_MOE), PARTS, MOE },
    { "alltoall, and fp8_padding or capacity, without pad and sync_free",
      MOE_LAYER(.features = GH_FEATURE_FP8_PADDING), 0, ROUTER | PREPROCESS },
    { "a family that does not let it be captured",
      { .traits = &held_back },
      0,
      ATTN },
    { "`embedding` or `head`; granularity `part` or `layer`, or ep overlap",
      { .features = GH_FEATURE_EMBEDDING },
      0,
      0 },
    { "offload `attn_norm`", { .offload = GH_MODULE_ATTN_NORM }, 0, ATTN },
    { "offload `attn_norm`, the layer before ends in a graph",
      { .offload = GH_MODULE_ATTN_NORM },
      AFTER_GRAPH,
      MLP },
    { "offload `mlp_norm`, no experts, `mlp` eager",
      { .offload = GH_MODULE_MLP_NORM },
      0,
      ATTN },
    { "offload `mlp_norm`, no experts, `attn` eager",
      { .offload = GH_MODULE_MLP_NORM },
      0,
      MLP },
    { "offload `mlp_norm`, `mlp_only`, the layer before ends in a graph",
      { .kind = GH_LAYER_MLP_ONLY, .offload = GH_MODULE_MLP_NORM },
      AFTER_GRAPH,
      ATTN },
    { "offload `mlp_norm`, granularity `part` or ep overlap",
      { .offload = GH_MODULE_MLP_NORM },
      PARTS,
      ATTN | MLP },
    { "offload `mlp_norm`, experts", MOE_LAYER(.offload = GH_MODULE_MLP_NORM),
      0, ATTN },
    { "offload `mlp_norm`, experts", MOE_LAYER(.offload = GH_MODULE_MLP_NORM),
      0, ROUTER },
    { "offload `moe`, `shared_experts`, `expert_fc1`, `moe_act` or `mlp_norm`",
      MOE_LAYER(PADDED, .offload = GH_MODULE_MOE), 0, MOE },
    { "recompute `mlp_norm`", MOE_LAYER(.recompute = GH_MODULE_MLP_NORM), 0,
      ROUTER },
    { "recompute `mlp_norm`; shared_overlap, or allgather or flex without "
      "latent",
      MOE_LAYER(.recompute = GH_MODULE_MLP_NORM,
                .dispatcher = GH_DISPATCHER_FLEX),
      0, ROUTER | PREPROCESS },
    { "recompute `mlp_norm`, granularity `part`",
      MOE_LAYER(PADDED, .recompute = GH_MODULE_MLP_NORM), PARTS, MOE },
    { "offload `attn_proj`, not `core_attn`",
      { .offload = GH_MODULE_ATTN_PROJ },
      0,
      0 },
    { "recompute `moe`, offload `expert_fc1` or `moe_act`",
      MOE_LAYER(.recompute = GH_MODULE_MOE, .offload = GH_MODULE_MOE_ACT), 0,
      0 },
    { "shared_overlap, recompute `shared_experts`",
      MOE_LAYER(BESIDE, .recompute = GH_MODULE_SHARED_EXPERTS), 0, 0 },
    { "ep overlap, shared_overlap", MOE_LAYER(BESIDE), OVERLAP, 0 },
    { "ep overlap, recompute `moe`", MOE_LAYER(.recompute = GH_MODULE_MOE),
      OVERLAP, 0 },
    { "ep overlap, experts, recompute `layer`",
      MOE_LAYER(.recompute = GH_MODULE_LAYER), OVERLAP, 0 },
    { "ep overlap, ncclep, offload `expert_fc1`",
      MOE_LAYER(.backend = GH_BACKEND_NCCLEP, .dispatcher = GH_DISPATCHER_FLEX,
                .offload = GH_MODULE_EXPERT_FC1),
      OVERLAP, 0 },
};

static const uint32_t scopes[] = {
    0, ATTN, MLP, MOE, ROUTER, ROUTER | PREPROCESS, MAMBA,
};
#define N_SCOPES (sizeof(scopes) / sizeof(scopes[0]))

static void print_scope(uint32_t scope)
{
    const char *blank = "";

    if (scope == 0) {
        printf("none: whole layers");
    }
    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if ((scope & GH_SCOPE(item)) != 0) {
            printf("%s`%s`", blank, gh_item_name(item));
            blank = " ";
        }
    }
}

static bool applies(uint32_t scope, const struct gh_layer *layer)
{
    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if ((scope & GH_SCOPE(item)) != 0 && gh_item_applies(item, layer)) {
            return true;
        }
    }
    return scope == 0;
}

/* The parts that are graphed, or that are not. */
static void print_parts(const struct gh_layer *layer,
                        const struct gh_layer_plan *plan, bool graphed)
{
    const gh_part *parts;
    const uint32_t n_parts = gh_layer_parts(layer, &parts);
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_parts; i++) {
        n += plan->graphed[parts[i]] == graphed;
    }
    if (n == 0 || n == n_parts) {
        printf(" %s |", n == 0 ? "nothing" : "all");
        return;
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        if (plan->graphed[parts[i]] == graphed) {
            printf(" %s", gh_part_name(parts[i]));
        }
    }
    printf(" |");
}

static void print_refused(const struct gh_layer_plan *plan)
{
    const char *between = " ";

    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if (plan->refused[item] != 0) {
            printf("%s`%s`: %s", between, gh_item_name(item),
                   gh_causes[gh_cause_first(plan->refused[item])].why);
            between = "; ";
        }
    }
    printf(" |\n");
}

static struct gh_plan_options options_of(const struct sample *sample,
                                         uint32_t scope)
{
    return (struct gh_plan_options){
        .scope = scope,
        .granularity = (sample->how & PARTS) != 0 ? GH_GRANULARITY_PART
                                                  : GH_GRANULARITY_LAYER,
        .ep_overlap = (sample->how & OVERLAP) != 0,
    };
}

static void print_kind(const struct sample *sample)
{
    const char *comma = "";
    struct gh_plan_options options;
    struct gh_layer_plan plan;

    for (size_t i = 0; i < N_SCOPES; i++) {
        if (!applies(scopes[i], &sample->layer)) {
            continue;
        }
        options = options_of(sample, scopes[i]);
        gh_rules_layer(&sample->layer, &options, GH_BEFORE_EAGER, &plan);
        printf("| %s | ", sample->text);
        print_scope(scopes[i]);
        printf(" |");
        print_parts(&sample->layer, &plan, true);
        print_parts(&sample->layer, &plan, false);
        print_refused(&plan);
    }
    printf("| %s | ", sample->text);
    for (size_t i = 0; i < N_SCOPES; i++) {
        if (!applies(scopes[i], &sample->layer)) {
            printf("%s", comma);
            print_scope(scopes[i]);
            comma = ", ";
        }
    }
    printf(" | nothing | all | it has no such part |\n");
}

/* A row of the second table: what is refused, and what undoes it. */
struct refusal {
    enum gh_cause cause;
    char remedy[256];
};

/* What a sample is refused for: as its item, its offload or recomputing. */
static struct refusal refusal_of(const struct sample *sample)
{
    const struct gh_plan_options options = options_of(sample, sample->scope);
    struct gh_layer_plan plan;
    struct refusal refusal;

    gh_rules_layer(&sample->layer, &options,
                   (sample->how & AFTER_GRAPH) != 0 ? GH_BEFORE_GRAPH
                                                    : GH_BEFORE_EAGER,
                   &plan);
    for (enum gh_scope_item item = GH_ITEM_COUNT; item-- > 0;) {
        if ((sample->scope & GH_SCOPE(item)) != 0 && plan.refused[item] != 0) {
            refusal.cause = gh_cause_first(plan.refused[item]);
            gh_item_remedy(&plan, item, GH_PART_MOE_ROUTER, refusal.remedy,
                           sizeof(refusal.remedy));
            return refusal;
        }
    }
    refusal.cause = gh_rules_contradiction(&sample->layer, &options);
    if (gh_layer_has(&sample->layer, GH_PART_EMBEDDING)) {
        refusal.cause = gh_cause_first(plan.causes[GH_PART_EMBEDDING]);
    }
    if (refusal.cause == GH_CAUSE_NONE) {
        refusal.cause = plan.offload_cause[0] != GH_CAUSE_NONE
                            ? plan.offload_cause[0]
                            : plan.recompute_cause;
    }
    snprintf(refusal.remedy, sizeof(refusal.remedy), "%s",
             gh_causes[refusal.cause].remedy);
    return refusal;
}

/* What of the layer is refused. */
static void print_target(const struct sample *sample, enum gh_cause cause)
{
    if (cause >= GH_CAUSE_PROJ_ALONE) {
        printf("the description");
        return;
    }
    if (cause == GH_CAUSE_END) {
        printf("the embedding, or the head");
        return;
    }
    if (cause == GH_CAUSE_RECOMPUTE_MLP_NORM) {
        printf("the recomputation, with ");
    } else if (cause >= GH_CAUSE_OFFLOAD_ATTN_NORM) {
        printf("the offload, with ");
    }
    if (cause <= GH_CAUSE_FAMILY) {
        printf("every word");
    } else {
        print_scope(sample->scope);
    }
}

static void print_refusal(const struct sample *sample)
{
    const struct refusal refusal = refusal_of(sample);

    printf("| %s | ", sample->text);
    print_target(sample, refusal.cause);
    printf(" | %s | %s |\n", gh_cause_why(refusal.cause, &sample->layer),
           refusal.remedy);
}

void plan_table(void)
{
    printf("| layer | scope | captured | eager | refused, and why |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        print_kind(&kinds[i]);
    }
    printf("\n| where a layer has | this is refused | because | remedy |\n"
           "| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        print_refusal(&refusals[i]);
    }
}
