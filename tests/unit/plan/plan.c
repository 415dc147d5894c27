/*
 * A plan covers every part of every layer once, and says why.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/model.h"
#include "plan/plan.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static gh_error err;

static gh_status add(gh_model *model, uint32_t chunk, const char *name)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .chunk = chunk,
                           .name = name };

    return gh_model_add_layer(model, &desc, &err);
}

static gh_model *model_of(uint32_t n_layers, uint32_t n_chunks)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < n_layers; i++) {
        add(model, i * n_chunks / n_layers, NULL);
    }
    return model;
}

#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define MLP GH_SCOPE(GH_ITEM_MLP)
#define MOE GH_SCOPE(GH_ITEM_MOE)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)
#define MAMBA GH_SCOPE(GH_ITEM_MAMBA)

static gh_status make(const gh_model *model, uint32_t scope,
                      enum gh_granularity granularity, struct gh_plan *plan)
{
    const struct gh_plan_options options = { .scope = scope,
                                             .granularity = granularity };

    return gh_plan_make(model, &options, plan, &err);
}

static void test_no_layers_is_no_plan(void)
{
    struct gh_plan plan;
    gh_model *model = model_of(0, 1);

    is_status(make(model, 0, GH_GRANULARITY_LAYER, &plan), GH_ERR_INVALID, &err,
              "a model without layers has no plan");
    gh_model_destroy(model);
}

/* Every part of every layer once, in order, and every segment in a chunk. */
static bool is_whole(const struct gh_plan *plan)
{
    uint32_t layer = 0, k = 0;

    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];
        bool last = false;

        if (s->index != i || s->reason == NULL) {
            return false;
        }
        for (bool first = true; !last; first = false) {
            const gh_part *parts;
            const uint32_t n = gh_layer_parts(&plan->layers[layer], &parts);
            const gh_part part = parts[k];

            if (plan->layers[layer].chunk != s->chunk ||
                (first && (layer != s->first_layer || part != s->first_part))) {
                return false;
            }
            last = layer == s->last_layer && part == s->last_part;
            if (++k == n) {
                layer++;
                k = 0;
            }
            if (layer == plan->n_layers && !last) {
                return false;
            }
        }
    }
    return layer == plan->n_layers &&
           plan->chunk_start[plan->n_chunks] == plan->n_segments;
}

static const struct {
    uint32_t scope;
    enum gh_granularity granularity;
    uint32_t per_layer;
    const char *modes; /* of a layer's segments */
} shapes[] = {
    { 0, GH_GRANULARITY_LAYER, 1, "g" },
    { 0, GH_GRANULARITY_PART, 2, "gg" },
    { ATTN, GH_GRANULARITY_LAYER, 2, "ge" },
    { ATTN, GH_GRANULARITY_PART, 2, "ge" },
    { MLP, GH_GRANULARITY_LAYER, 2, "eg" },
    { MLP, GH_GRANULARITY_PART, 2, "eg" },
    { ATTN | MLP, GH_GRANULARITY_LAYER, 1, "g" },
    { ATTN | MLP, GH_GRANULARITY_PART, 2, "gg" },
};

static void test_every_scope_and_granularity_of_a_dense_model(void)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct gh_plan plan;
        gh_model *model = model_of(6, 3);
        bool modes = true;

        make(model, shapes[i].scope, shapes[i].granularity, &plan);
        gh_model_destroy(model);
        is_int(plan.n_segments, 6 * shapes[i].per_layer,
               "scope %x, granularity %d: %u segments a layer", shapes[i].scope,
               shapes[i].granularity, shapes[i].per_layer);
        ok(is_whole(&plan), "and together they are every part once");
        for (uint32_t s = 0; s < plan.n_segments; s++) {
            bool graphed = plan.segments[s].mode == GH_SEGMENT_GRAPHED;

            modes =
                modes &&
                graphed == (shapes[i].modes[s % shapes[i].per_layer] == 'g');
        }
        ok(modes, "graphed and eager as the scope says");
        is_int(plan.n_chunks, 3, "in three chunks");
        is_int(plan.chunk_start[1], 2 * shapes[i].per_layer,
               "of two layers each");
        gh_plan_free(&plan);
    }
}

static void test_a_chunk_is_one_segment_where_all_is_graphed(void)
{
    struct gh_plan plan;
    gh_model *model = model_of(6, 3);

    make(model, 0, GH_GRANULARITY_CHUNK, &plan);
    is_int(plan.n_segments, 3, "three chunks of whole layers: three segments");
    ok(is_whole(&plan), "each part once");
    is_int(plan.segments[1].first_layer, 2, "the second begins at layer 2");
    is_int(plan.segments[1].last_layer, 3, "and ends with layer 3");
    gh_plan_free(&plan);

    make(model, MLP, GH_GRANULARITY_CHUNK, &plan);
    is_int(plan.n_segments, 12, "where attention is eager nothing is joined");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

static void test_ten_thousand_layers(void)
{
    struct gh_plan plan;
    gh_model *model = model_of(10000, 1);

    is_status(make(model, 0, GH_GRANULARITY_PART, &plan), GH_OK, &err,
              "10,000 layers are planned");
    ok(is_whole(&plan), "each part of them once");
    gh_model_destroy(model);
    gh_plan_free(&plan);
}

/* ---- layers of other kinds ---------------------------------------------- */

static void add_kind(gh_model *model, gh_layer_kind kind, uint32_t features,
                     gh_dispatcher dispatcher)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .kind = kind,
                           .features = features,
                           .dispatcher = dispatcher };

    if (gh_kind_has(kind, GH_PART_MOE_ROUTER)) {
        desc.experts = 8;
    }
    gh_model_add_layer(model, &desc, &err);
}

/* "attn* moe_router* moe_preprocess ...": a star is a graphed part, and a
 * bar ends a segment. */
static const char *drawn(const struct gh_plan *plan)
{
    static char text[1024];
    uint32_t s = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const gh_part *parts;
        const uint32_t n = gh_layer_parts(&plan->layers[i], &parts);

        for (uint32_t k = 0; k < n; k++) {
            const gh_segment *at = &plan->segments[s];
            const gh_part part = parts[k];

            strcat(text, gh_part_name(part));
            strcat(text, at->mode == GH_SEGMENT_GRAPHED ? "*" : "");
            if (at->last_layer == i && at->last_part == part) {
                strcat(text, s + 1 < plan->n_segments ? " | " : "");
                s++;
            } else {
                strcat(text, " ");
            }
        }
    }
    return text;
}

#define DROP_AND_PAD (GH_FEATURE_CAPACITY | GH_FEATURE_PAD)
#define REST "moe_dispatch moe_experts moe_combine moe_post"

static const struct {
    gh_layer_kind kind;
    uint32_t features;
    gh_dispatcher dispatcher;
    uint32_t scope;
    const char *drawn;
} resolved[] = {
    /* drop-and-pad: static shapes, everything can be captured */
    { GH_LAYER_MOE, DROP_AND_PAD, 0, 0,
      "attn* moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ATTN,
      "attn* | moe_router moe_preprocess " REST },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, MOE,
      "attn | moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ATTN | MOE,
      "attn* moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ATTN | ROUTER,
      "attn* moe_router* | moe_preprocess " REST },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ATTN | ROUTER | PREPROCESS,
      "attn* moe_router* moe_preprocess* | " REST },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ROUTER,
      "attn | moe_router* | moe_preprocess " REST },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, ROUTER | PREPROCESS,
      "attn | moe_router* moe_preprocess* | " REST },
    /* dropless: counts change, the experts stay eager */
    { GH_LAYER_MOE, 0, GH_DISPATCHER_ALLTOALL, 0,
      "attn* moe_router* moe_preprocess* | " REST },
    { GH_LAYER_MOE, 0, GH_DISPATCHER_ALLTOALL, ATTN | ROUTER | PREPROCESS,
      "attn* moe_router* moe_preprocess* | " REST },
    { GH_LAYER_MOE, GH_FEATURE_FP8_PADDING, GH_DISPATCHER_ALLTOALL, 0,
      "attn* moe_router* | moe_preprocess | " REST },
    { GH_LAYER_MOE, GH_FEATURE_CAPACITY, GH_DISPATCHER_ALLTOALL, 0,
      "attn* moe_router* | moe_preprocess | " REST },
    { GH_LAYER_MOE, GH_FEATURE_FP8_PADDING, GH_DISPATCHER_ALLGATHER, 0,
      "attn* moe_router* moe_preprocess* | " REST },
    { GH_LAYER_MOE, GH_FEATURE_SYNC_FREE, GH_DISPATCHER_FLEX, MOE,
      "attn | moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    /* the layers of hybrid stacks */
    { GH_LAYER_MAMBA, 0, 0, 0, "mamba*" },
    { GH_LAYER_MAMBA, 0, 0, MAMBA, "mamba*" },
    { GH_LAYER_ATTN_ONLY, 0, 0, ATTN, "attn*" },
    { GH_LAYER_MLP_ONLY, 0, 0, MLP, "mlp*" },
    { GH_LAYER_MOE_ONLY, 0, 0, ROUTER, "moe_router* | moe_preprocess " REST },
};

static void test_every_kind_resolves_as_users_know_it(void)
{
    for (size_t i = 0; i < sizeof(resolved) / sizeof(resolved[0]); i++) {
        struct gh_plan plan = { 0 };
        gh_model *model = NULL;

        gh_model_create(&model, NULL);
        add_kind(model, resolved[i].kind, resolved[i].features,
                 resolved[i].dispatcher);
        is_status(make(model, resolved[i].scope, GH_GRANULARITY_LAYER, &plan),
                  GH_OK, &err, "row %zu: there is a plan", i);
        is_str(drawn(&plan), resolved[i].drawn, "row %zu: as it should be", i);
        ok(is_whole(&plan), "row %zu: every part once", i);
        gh_plan_free(&plan);
        gh_model_destroy(model);
    }
}

static const struct {
    gh_layer_kind kind;
    uint32_t features, recompute, scope;
    bool overlap;
    const char *word;
} refused[] = {
    { GH_LAYER_MOE, DROP_AND_PAD, 0, MOE | ROUTER, false, "moe_router" },
    { GH_LAYER_MOE, 0, 0, PREPROCESS, false, "name moe_router too" },
    { GH_LAYER_MOE, 0, 0, MLP, false, "scope mlp: no layer" },
    { GH_LAYER_DENSE, 0, 0, MAMBA, false, "scope mamba: no layer" },
    { GH_LAYER_DENSE, 0, 0, ROUTER, false, "scope moe_router: no layer" },
    { GH_LAYER_MAMBA, 0, 0, ATTN, false, "scope attn: no layer" },
    { GH_LAYER_MOE, 0, 0, MOE, false, "another number of tokens" },
    { GH_LAYER_MOE, DROP_AND_PAD, 0, MOE, true, "another microbatch" },
    { GH_LAYER_MOE, GH_FEATURE_FP8_PADDING, 0, ROUTER | PREPROCESS, false,
      "must tell the host" },
    { GH_LAYER_MOE, 0, GH_MODULE_MOE, ROUTER, false, "recomputed as one" },
    { GH_LAYER_DENSE, 0, GH_MODULE_LAYER, ATTN, false, "as a whole" },
    { GH_LAYER_DENSE, GH_FEATURE_ATTN_DROPOUT, GH_MODULE_CORE_ATTN, ATTN, false,
      "attention has dropout" },
    { GH_LAYER_MOE, DROP_AND_PAD | GH_FEATURE_ROUTER_JITTER, GH_MODULE_MOE, MOE,
      false, "draws random numbers" },
};

static void test_what_no_layer_can_have_is_an_error(void)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const struct gh_plan_options options = {
            .scope = refused[i].scope,
            .granularity = GH_GRANULARITY_LAYER,
            .ep_overlap = refused[i].overlap,
        };
        gh_layer_desc desc = { .struct_size = sizeof(desc),
                               .kind = refused[i].kind,
                               .features = refused[i].features,
                               .recompute = refused[i].recompute };
        const gh_model_desc all = { .struct_size = sizeof(all),
                                    .flags = GH_MODEL_WHOLE };
        struct gh_plan plan;
        gh_model *model;

        desc.experts = refused[i].kind == GH_LAYER_MOE ? 4 : 0;
        gh_model_create(&model, NULL);
        gh_model_describe(model, &all, NULL);
        gh_model_add_layer(model, &desc, &err);
        is_status(gh_plan_make(model, &options, &plan, &err), GH_ERR_CONFIG,
                  &err, "row %zu: it is refused", i);
        ok(strstr(err.text, refused[i].word) != NULL, "row %zu: %s", i,
           err.text);
        gh_model_destroy(model);
    }
}

/* What one stage of a pipeline has not, another may have. */
static void test_a_word_that_names_nothing_is_a_note_on_a_rank(void)
{
    gh_model_desc all = { .struct_size = sizeof(all), .flags = GH_MODEL_WHOLE };
    gh_model *model = model_of(2, 1);
    struct gh_plan plan;
    char text[512] = "";

    is_status(make(model, ATTN | MOE | MAMBA, GH_GRANULARITY_LAYER, &plan),
              GH_OK, &err, "a rank need not have all that the scope names");
    ok(gh_plan_note_text(&plan, GH_CAUSE_NONE, text, sizeof(text)),
       "which is noted");
    is_str(text,
           "scope moe,mamba: no layer of this rank has one; leave it out "
           "unless another rank has",
           "with the words");
    gh_plan_free(&plan);
    make(model, ATTN, GH_GRANULARITY_LAYER, &plan);
    ok(!gh_plan_note_text(&plan, GH_CAUSE_NONE, text, sizeof(text)),
       "there is no such note where each word names something");
    gh_plan_free(&plan);
    is_status(make(model, MOE | MAMBA, GH_GRANULARITY_LAYER, &plan),
              GH_ERR_CONFIG, &err, "a scope that names nothing is refused");
    ok(strstr(err.text, "this rank has one; leave it out, or name one of "
                        "attn,mlp") != NULL,
       "with what could be named: %s", err.text);
    gh_model_describe(model, &all, NULL);
    is_status(make(model, ATTN | MOE, GH_GRANULARITY_LAYER, &plan),
              GH_ERR_CONFIG, &err, "of a whole job each word names something");
    ok(strstr(err.text, "scope moe: no layer of this model has one") != NULL,
       "or is refused: %s", err.text);
    gh_model_destroy(model);
}

/* What every layer of one stage refuses, one of another may grant. */
static void test_a_word_that_is_refused_throughout_is_a_note_on_a_rank(void)
{
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .flags = GH_MODEL_WHOLE };
    gh_model *model = NULL;
    struct gh_plan plan;
    char text[512] = "";

    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    is_status(make(model, ATTN | MOE, GH_GRANULARITY_LAYER, &plan), GH_OK, &err,
              "a rank need not be able to capture all that the scope names");
    ok(plan.layer_plans[0].graphed[GH_PART_ATTN] &&
           !plan.layer_plans[0].graphed[GH_PART_MOE_ROUTER],
       "what it can is captured");
    ok(gh_plan_note_text(&plan, GH_CAUSE_DYNAMIC_EXPERTS, text, sizeof(text)),
       "and the rest is noted");
    ok(strstr(text, "layer 0 (and 1 more)") != NULL &&
           strstr(text, "set a capacity and pad to it") != NULL,
       "with its layers, and what to do: %s", text);
    gh_plan_free(&plan);
    is_status(make(model, MOE, GH_GRANULARITY_LAYER, &plan), GH_ERR_CONFIG,
              &err, "a scope of which nothing is captured is refused");
    is_status(make(model, MOE | MLP, GH_GRANULARITY_LAYER, &plan),
              GH_ERR_CONFIG, &err, "also with a word that names nothing");
    ok(strstr(err.text, "scope moe: layer 0: ") != NULL,
       "for the word that does: %s", err.text);
    gh_model_describe(model, &all, NULL);
    is_status(make(model, ATTN | MOE, GH_GRANULARITY_LAYER, &plan),
              GH_ERR_CONFIG, &err,
              "of a whole job each word captures something");
    ok(strstr(err.text, "scope moe: layer 0: ") != NULL, "or is refused: %s",
       err.text);
    gh_model_destroy(model);
}

/* Layer 0 and half of layer 1 are one segment, its other half another. */
static void test_what_a_segment_needs_of_a_host(void)
{
    gh_model *model = NULL;
    struct gh_plan plan;

    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_DENSE, 0, 0);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    add_kind(model, GH_LAYER_DENSE, 0, 0);
    make(model, ATTN | MLP | ROUTER, GH_GRANULARITY_CHUNK, &plan);
    is_int(plan.n_segments, 3, "a chunk is cut in the middle of a layer");
    is_int(gh_plan_needs(&plan, 0), GH_CAN_CHUNKS | GH_CAN_PARTS,
           "a layer and a half need both");
    is_int(gh_plan_needs(&plan, 1), GH_CAN_PARTS,
           "the other half is a part of a layer");
    is_int(gh_plan_needs(&plan, 2), GH_CAN_LAYERS, "what follows is a layer");
    gh_plan_free(&plan);
    make(model, ATTN, GH_GRANULARITY_LAYER, &plan);
    is_int(gh_plan_needs(&plan, plan.n_segments - 1), GH_CAN_PARTS,
           "so is the last piece of the last layer");
    is_int(gh_plan_needs(&plan, 0), GH_CAN_PARTS, "and the first of the first");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text);

    return bytes >= strlen(end) && strcmp(text + bytes - strlen(end), end) == 0;
}

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Whether the sentence of a cause ends where it does, or after a word. */
static bool is_told(const char *text, const char *why)
{
    size_t n = 0;

    while (why[n] != '\0' && text[n] == why[n]) {
        n++;
    }
    return (why[n] == '\0' && begins_with(text + n, "; ")) ||
           (n > 30 && why[n] == ' ' && begins_with(text + n, "...; "));
}

/* With a cause, and a remedy to its end. */
static bool is_whole_refusal(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    bool told = false;

    if (at == NULL) {
        return false;
    }
    at += strlen(name) + strlen(": ");
    for (enum gh_cause c = GH_CAUSE_RECOMPUTE_LAYER; c < GH_CAUSE_COUNT; c++) {
        told |= is_told(at, gh_causes[c].why);
    }
    return told && (ends_with(text, "out of the scope") ||
                    ends_with(text, " instead of moe"));
}

static void refuse_as(const gh_layer_desc *desc, uint32_t scope,
                      uint32_t *refused, uint32_t *cut)
{
    struct gh_plan plan;
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    if (gh_model_add_layer(model, desc, &err) == GH_OK) {
        if (make(model, scope, GH_GRANULARITY_LAYER, &plan) == GH_OK) {
            gh_plan_free(&plan);
        } else if (begins_with(err.text, "scope ")) {
            (*refused)++;
            if (!is_whole_refusal(err.text, desc->name)) {
                (*cut)++;
                diag("%s", err.text);
            }
        }
    }
    gh_model_destroy(model);
}

/* However many causes there are, and however long the layer's name is. */
static void test_no_refusal_is_cut(void)
{
    static const uint32_t features[] = {
        GH_FEATURE_PACKED, GH_FEATURE_ATTN_DROPOUT, GH_FEATURE_HOST_ROUTER,
        GH_FEATURE_FP8_PADDING,
        GH_FEATURE_CAPACITY | GH_FEATURE_PAD | GH_FEATURE_ROUTER_JITTER,
    };
    static const uint32_t scopes[] = { ATTN, MOE, ROUTER, ROUTER | PREPROCESS };
    static const char name[] = "decoder.layers.17.its_long_name_goes_on";
    uint32_t refused = 0, cut = 0;

    for (uint32_t bits = 0; bits < 4 * 2 * 2 * 3 * 32; bits++) {
        const uint32_t variety = bits / 32;
        gh_layer_desc desc = { .struct_size = sizeof(desc),
                               .kind = GH_LAYER_MOE,
                               .experts = variety % 2 == 0 ? 8 : 1,
                               .dispatcher = variety / 2 % 2,
                               .name = &name[bits % 23] };

        for (uint32_t i = 0; i < 5; i++) {
            desc.features |= (bits >> i & 1) != 0 ? features[i] : 0;
        }
        desc.recompute = variety / 4 % 3 == 0   ? GH_MODULE_LAYER
                         : variety / 4 % 3 == 1 ? GH_MODULE_MOE
                                                : GH_MODULE_CORE_ATTN;
        desc.offload = desc.recompute == GH_MODULE_LAYER ? GH_MODULE_LAYER : 0;
        refuse_as(&desc, scopes[variety / 12], &refused, &cut);
    }
    ok(refused > 200, "many layers are refused for several causes: %u",
       refused);
    is_int(cut, 0, "and no refusal ends in the middle of a word");
}

/* One such layer is enough, whatever is captured of it. */
static void test_a_layer_that_contradicts_itself_has_no_plan(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc), .name = "odd" };
    struct gh_plan plan;
    gh_model *model = model_of(2, 1);

    desc.offload = GH_MODULE_ATTN_PROJ;
    gh_model_add_layer(model, &desc, &err);
    is_status(make(model, MLP, GH_GRANULARITY_LAYER, &plan), GH_ERR_CONFIG,
              &err, "one layer of three that contradicts itself is refused");
    is_str(err.text,
           "odd: the input of its attn_proj is the output of its core_attn, "
           "so offloading attn_proj alone frees nothing; offload core_attn "
           "too, or leave attn_proj out",
           "with its name, the rule and the remedy");
    gh_model_destroy(model);
}

static void test_what_some_layers_cannot_have_is_narrowed_and_said(void)
{
    struct gh_plan plan;
    gh_model *model;
    char text[512];

    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_MOE, DROP_AND_PAD, 0);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    is_status(make(model, MOE, GH_GRANULARITY_LAYER, &plan), GH_OK, &err,
              "one of three layers can be captured with moe");
    ok(plan.layer_plans[0].graphed[GH_PART_MOE_EXPERTS] &&
           !plan.layer_plans[1].graphed[GH_PART_MOE_EXPERTS],
       "so that one is");
    ok(gh_plan_note_text(&plan, GH_CAUSE_DYNAMIC_EXPERTS, text, sizeof(text)),
       "and the others are said");
    ok(strstr(text, "layer 1 (and 1 more)") != NULL, "once: %s", text);
    ok(strcmp(plan.layer_plans[1].reason[GH_PART_MOE_ROUTER],
              gh_causes[GH_CAUSE_DYNAMIC_EXPERTS].why) == 0,
       "an eager router says that moe was refused");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* One layer may have moe_router, the other what goes on after it: together
 * they have nothing of moe_preprocess. */
static void test_preprocess_is_refused_with_its_router(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .kind = GH_LAYER_MOE,
                           .experts = 8 };
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .flags = GH_MODEL_WHOLE };
    struct gh_plan plan;
    gh_model *model;

    gh_model_create(&model, NULL);
    desc.recompute = GH_MODULE_MOE;
    gh_model_add_layer(model, &desc, &err);
    desc.recompute = 0;
    gh_model_add_layer(model, &desc, &err);
    is_status(make(model, ROUTER | PREPROCESS, GH_GRANULARITY_LAYER, &plan),
              GH_OK, &err, "a layer that recomputes its experts is left out");
    is_str(plan.layer_plans[0].reason[GH_PART_MOE_PREPROCESS],
           gh_causes[GH_CAUSE_RECOMPUTE_MOE].why,
           "what was named after its router is told the router's reason");
    gh_plan_free(&plan);
    gh_model_destroy(model);

    gh_model_create(&model, NULL);
    desc.recompute = GH_MODULE_MOE;
    gh_model_add_layer(model, &desc, &err);
    desc.recompute = 0;
    desc.features = GH_FEATURE_FP8_PADDING;
    gh_model_add_layer(model, &desc, &err);
    gh_model_describe(model, &all, NULL);
    is_status(make(model, ROUTER | PREPROCESS, GH_GRANULARITY_LAYER, &plan),
              GH_ERR_CONFIG, &err, "moe_preprocess that no layer can have");
    ok(strstr(err.text, "layer 0: its experts are recomputed") != NULL,
       "is refused with a reason: %s", err.text);
    gh_model_destroy(model);
}

static void test_a_layer_that_is_offloaded_as_a_whole_is_eager(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .offload = GH_MODULE_LAYER };
    struct gh_plan plan;
    gh_model *model;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, &err);
    is_status(make(model, ATTN, GH_GRANULARITY_LAYER, &plan), GH_ERR_CONFIG,
              &err, "nothing of it can be captured");
    ok(strstr(err.text, "offloaded") != NULL, "which is said: %s", err.text);
    is_status(make(model, 0, GH_GRANULARITY_LAYER, &plan), GH_OK, &err,
              "without a scope it is narrowed to eager");
    ok(!plan.layer_plans[0].graphed[GH_PART_ATTN] &&
           plan.layer_plans[0].offload_eager == GH_MODULE_LAYER,
       "and offloaded beside it");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* A plan is JSON whatever the names, so none is cut inside a character. */
static void test_long_names_are_cut_between_characters(void)
{
    char name[122];

    memset(name, 'x', sizeof(name));
    for (size_t i = 1; i + 1 < sizeof(name); i += 2) {
        memcpy(name + i, "\xc3\xa9", 2);
    }
    name[sizeof(name) - 1] = '\0';
    is_int(gh_shown_bytes("short", 40), 5, "a short name is shown whole");
    is_int(gh_shown_bytes(name, 41), 41, "a long one up to a character's end");
    is_int(gh_shown_bytes(name, 40), 39, "and not into a character");
}

/* What a list of words captures is what each of them captures. */
static void test_words_of_a_scope_do_not_depend_on_each_other(void)
{
    static const uint32_t words[] = {
        ATTN, MLP, MOE, ROUTER, ROUTER | PREPROCESS, MAMBA
    };
    const uint32_t features[] = { 0, GH_FEATURE_CAPACITY, DROP_AND_PAD,
                                  GH_FEATURE_FP8_PADDING };
    bool equal = true;

    for (uint32_t scope = 1; scope < GH_SCOPE(GH_ITEM_COUNT); scope++) {
        for (uint32_t n = 0; n < GH_KIND_COUNT * 4; n++) {
            const struct gh_layer layer = { .kind = n / 4,
                                            .features = features[n % 4],
                                            .experts = 8 };
            struct gh_plan_options options = { .granularity =
                                                   GH_GRANULARITY_LAYER };
            struct gh_layer_plan whole, one;
            bool any[GH_PART_COUNT] = { false };

            if (gh_rules_check_scope(scope, NULL) != GH_OK) {
                continue;
            }
            options.scope = scope;
            gh_rules_layer(&layer, &options, GH_BEFORE_EAGER, &whole);
            for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
                if ((scope & words[w]) != words[w]) {
                    continue;
                }
                options.scope = words[w];
                gh_rules_layer(&layer, &options, GH_BEFORE_EAGER, &one);
                for (uint32_t p = 0; p < GH_PART_COUNT; p++) {
                    any[p] |= one.graphed[p];
                }
            }
            equal = equal && memcmp(any, whole.graphed, sizeof(any)) == 0;
        }
    }
    ok(equal, "every scope captures what its words do, of every kind");
}

static void test_offload_follows_the_graphs(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .offload = GH_MODULE_ATTN_NORM |
                                      GH_MODULE_CORE_ATTN | GH_MODULE_MLP };
    struct gh_plan plan;
    gh_model *model;
    char text[512];

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, &err);
    make(model, ATTN, GH_GRANULARITY_LAYER, &plan);
    is_int(plan.layer_plans[0].offload_in_graph, GH_MODULE_CORE_ATTN,
           "a captured module is offloaded from inside the graph");
    is_int(plan.layer_plans[0].offload_eager, GH_MODULE_MLP,
           "an eager one from beside it");
    is_int(plan.layer_plans[0].offload_off, GH_MODULE_ATTN_NORM,
           "attn_norm, whose output crosses the border, not at all");
    ok(gh_plan_note_text(&plan, GH_CAUSE_OFFLOAD_ATTN_NORM, text, sizeof(text)),
       "which is said: %s", text);
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* A norm that reads what a graph holds keeps its input on the device. */
static const struct {
    const char *text;
    gh_layer_desc before, layer;
    uint32_t scope;
    enum gh_granularity granularity;
    char how; /* what becomes of the layer's norm: 'g'raph, 'b'eside, 'o'ff */
} norms[] = {
    { "attention after a graph of an MLP",
      { .kind = GH_LAYER_DENSE },
      { .offload = GH_MODULE_ATTN_NORM },
      MLP,
      GH_GRANULARITY_LAYER,
      'o' },
    { "attention after an eager MLP",
      { .kind = GH_LAYER_MOE },
      { .offload = GH_MODULE_ATTN_NORM },
      MLP,
      GH_GRANULARITY_LAYER,
      'b' },
    { "attention after a graph, in another chunk",
      { .kind = GH_LAYER_DENSE },
      { .offload = GH_MODULE_ATTN_NORM, .chunk = 1 },
      MLP,
      GH_GRANULARITY_LAYER,
      'b' },
    { "attention whose input the host makes",
      { .kind = GH_LAYER_DENSE },
      { .offload = GH_MODULE_ATTN_NORM, .features = GH_FEATURE_MTP },
      MLP,
      GH_GRANULARITY_LAYER,
      'b' },
    { "attention in a graph that follows a graph",
      { .kind = GH_LAYER_DENSE },
      { .offload = GH_MODULE_ATTN_NORM },
      ATTN | MLP,
      GH_GRANULARITY_LAYER,
      'o' },
    { "attention in the middle of a chunk's graph",
      { .kind = GH_LAYER_DENSE },
      { .offload = GH_MODULE_ATTN_NORM },
      ATTN | MLP,
      GH_GRANULARITY_CHUNK,
      'g' },
    { "a layer's MLP after a graph of attention",
      { .kind = GH_LAYER_ATTN_ONLY },
      { .kind = GH_LAYER_MLP_ONLY, .offload = GH_MODULE_MLP_NORM },
      ATTN,
      GH_GRANULARITY_LAYER,
      'o' },
    { "a layer's MLP after eager attention",
      { .kind = GH_LAYER_ATTN_ONLY },
      { .kind = GH_LAYER_MLP_ONLY, .offload = GH_MODULE_MLP_NORM },
      MLP,
      GH_GRANULARITY_LAYER,
      'o' },
    { "a layer's MLP in the graph of the attention",
      { .kind = GH_LAYER_ATTN_ONLY },
      { .kind = GH_LAYER_MLP_ONLY, .offload = GH_MODULE_MLP_NORM },
      ATTN | MLP,
      GH_GRANULARITY_CHUNK,
      'g' },
    { "a layer's eager experts after a graph",
      { .kind = GH_LAYER_MAMBA },
      { .kind = GH_LAYER_MOE_ONLY, .offload = GH_MODULE_MLP_NORM },
      MAMBA,
      GH_GRANULARITY_CHUNK,
      'o' },
    { "an eager MLP after eager attention after a graph",
      { .kind = GH_LAYER_MAMBA },
      { .offload = GH_MODULE_MLP_NORM },
      MAMBA,
      GH_GRANULARITY_LAYER,
      'b' },
};

static void test_norms_that_read_what_a_graph_holds(void)
{
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++) {
        const gh_layer_desc *two[] = { &norms[i].before, &norms[i].layer };
        const struct gh_layer_plan *decided;
        struct gh_plan plan;
        gh_model *model;

        gh_model_create(&model, NULL);
        for (int k = 0; k < 2; k++) {
            gh_layer_desc desc = *two[k];

            desc.struct_size = sizeof(desc);
            desc.experts = gh_kind_has(desc.kind, GH_PART_MOE_ROUTER) ? 8 : 0;
            gh_model_add_layer(model, &desc, &err);
        }
        is_status(make(model, norms[i].scope, norms[i].granularity, &plan),
                  GH_OK, &err, "%s: there is a plan", norms[i].text);
        decided = &plan.layer_plans[1];
        is_int(decided->offload_off != 0        ? 'o'
               : decided->offload_in_graph != 0 ? 'g'
                                                : 'b',
               norms[i].how, "%s: its norm goes as it may", norms[i].text);
        gh_plan_free(&plan);
        gh_model_destroy(model);
    }
}

/* Between them the host makes the input of the depth. */
static void test_a_depth_of_prediction_is_not_joined(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc) };
    gh_border borders[GH_TENSOR_COUNT];
    struct gh_plan plan;
    gh_model *model;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, &err);
    gh_model_add_layer(model, &desc, &err);
    desc.features = GH_FEATURE_MTP;
    gh_model_add_layer(model, &desc, &err);
    desc.features = 0;
    gh_model_add_layer(model, &desc, &err);
    make(model, 0, GH_GRANULARITY_CHUNK, &plan);
    is_int(plan.n_segments, 2, "a graph of a chunk ends where a depth begins");
    is_int(plan.segments[1].first_layer, 2, "which has one of its own");
    is_int(plan.segments[1].last_layer, 3, "with the layers that follow");
    is_int(gh_plan_borders(&plan, 1, GH_SIDE_IN, borders), 0,
           "and reads nothing of the one before");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* The embedding and the head of two layers. */
static const struct {
    const char *what;
    gh_layer_kind kind;
    uint32_t scope;
    enum gh_granularity granularity;
    const char *drawn;
} ends[] = {
    { "a chunk's graph", GH_LAYER_DENSE, 0, GH_GRANULARITY_CHUNK,
      "embedding* attn* mlp* attn* mlp* head*" },
    { "graphs of layers", GH_LAYER_DENSE, 0, GH_GRANULARITY_LAYER,
      "embedding | attn* mlp* | attn* mlp* | head" },
    { "graphs of parts", GH_LAYER_MAMBA, 0, GH_GRANULARITY_PART,
      "embedding | mamba* | mamba* | head" },
    { "a chunk's graphs of attention", GH_LAYER_DENSE, ATTN,
      GH_GRANULARITY_CHUNK, "embedding* attn* | mlp | attn* | mlp head" },
    { "a chunk of dropless experts", GH_LAYER_MOE_ONLY, 0, GH_GRANULARITY_CHUNK,
      "embedding* moe_router* moe_preprocess* | moe_dispatch moe_experts "
      "moe_combine moe_post | moe_router* moe_preprocess* | moe_dispatch "
      "moe_experts moe_combine moe_post head" },
};

static void test_ends(void)
{
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        gh_layer_desc desc = { .struct_size = sizeof(desc),
                               .kind = ends[i].kind,
                               .features = GH_FEATURE_EMBEDDING };
        gh_border borders[GH_TENSOR_COUNT];
        struct gh_plan plan;
        gh_model *model;

        desc.experts = gh_kind_has(desc.kind, GH_PART_MOE_ROUTER) ? 8 : 0;
        gh_model_create(&model, NULL);
        gh_model_add_layer(model, &desc, &err);
        desc.features = GH_FEATURE_HEAD;
        gh_model_add_layer(model, &desc, &err);
        is_status(make(model, ends[i].scope, ends[i].granularity, &plan), GH_OK,
                  &err, "%s: a plan", ends[i].what);
        is_str(drawn(&plan), ends[i].drawn, "%s: the embedding and the head",
               ends[i].what);
        ok(is_whole(&plan), "%s: every part once", ends[i].what);
        is_int(gh_plan_borders(&plan, 0, GH_SIDE_IN, borders) +
                   gh_plan_borders(&plan, plan.n_segments - 1, GH_SIDE_OUT,
                                   borders),
               0, "%s: nothing comes from outside, and nothing leaves",
               ends[i].what);
        for (uint32_t s = 0; s < plan.n_segments; s++) {
            ok(ends[i].granularity != GH_GRANULARITY_LAYER ||
                   ends[i].scope != 0 ||
                   gh_plan_needs(&plan, s) == GH_CAN_LAYERS,
               "%s: segment %u cuts no layer", ends[i].what, s);
        }
        gh_plan_free(&plan);
        gh_model_destroy(model);
    }
}

/* Two layers in a chunk each; the last one of a third, if `third` is set. */
static const struct {
    uint32_t first, second, third;
    bool same_chunk;
    const char *says; /* NULL: there is a plan */
} places[] = {
    { GH_FEATURE_EMBEDDING | GH_FEATURE_HEAD, GH_FEATURE_MTP, GH_FEATURE_MTP,
      false, NULL },
    { GH_FEATURE_HEAD, GH_FEATURE_MTP | GH_FEATURE_HEAD, GH_FEATURE_MTP, true,
      NULL },
    { GH_FEATURE_MTP, 0, 0, true, NULL },
    { 0, GH_FEATURE_EMBEDDING, 0, true,
      "layer 1: an embedding comes before the first layer alone" },
    { GH_FEATURE_HEAD, 0, 0, false,
      "layer 0: a head comes behind the last layer, and" },
    { 0, GH_FEATURE_MTP, 0, false,
      "layer 2: its chunk comes after a depth of multi-token prediction, which "
      "comes last; let each chunk" },
    { GH_FEATURE_MTP, 0, GH_FEATURE_MTP, false,
      "layer 1: its chunk comes after a depth" },
};

static void test_places_of_ends_and_depths(void)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const uint32_t features[] = { places[i].first, places[i].second,
                                      places[i].third };
        struct gh_plan plan;
        gh_model *model;
        gh_status status;

        gh_model_create(&model, NULL);
        for (uint32_t k = 0; k < 3; k++) {
            const gh_layer_desc desc = {
                .struct_size = sizeof(desc),
                .features = features[k],
                .chunk = places[i].same_chunk ? 0 : k,
            };

            gh_model_add_layer(model, &desc, &err);
        }
        status = make(model, 0, GH_GRANULARITY_CHUNK, &plan);
        if (places[i].says == NULL) {
            is_status(status, GH_OK, &err, "row %zu: ends and depths", i);
        } else {
            is_int(status, GH_ERR_CONFIG, "row %zu: no plan", i);
            is_int(strncmp(err.text, places[i].says, strlen(places[i].says)), 0,
                   "row %zu: %s", i, err.text);
        }
        if (status == GH_OK) {
            gh_plan_free(&plan);
        }
        gh_model_destroy(model);
    }
}

static void test_what_is_not_worth_recomputing_is_said(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .kind = GH_LAYER_MOE,
                           .experts = 8,
                           .recompute = GH_MODULE_MLP_NORM };
    struct gh_plan plan;
    gh_model *model;
    char text[512] = "";

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, &err);
    gh_model_add_layer(model, &desc, &err);
    is_status(make(model, ROUTER, GH_GRANULARITY_LAYER, &plan), GH_OK, &err,
              "a router is captured whatever is recomputed");
    ok(gh_plan_note_text(&plan, GH_CAUSE_RECOMPUTE_MLP_NORM, text,
                         sizeof(text)),
       "and what that frees nothing of is said: %s", text);
    ok(strstr(text, "layer 0 (and 1 more): the output of its MLP norm") != NULL,
       "once for all layers");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* One layer, one cause, two words that it stops. */
static void test_a_cause_is_noted_once_a_layer(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .recompute = GH_MODULE_LAYER };
    struct gh_plan plan;
    gh_model *model;
    char text[512] = "";

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, &err);
    make(model, 0, GH_GRANULARITY_LAYER, &plan);
    gh_model_destroy(model);
    ok(gh_plan_note_text(&plan, GH_CAUSE_RECOMPUTE_LAYER, text, sizeof(text)) &&
           strstr(text, "layer 0: it is recomputed") != NULL,
       "attn and mlp of one layer are one note: %s", text);
    gh_plan_free(&plan);
}

/* ---- what a segment does besides -------------------------------------- */

/* "attn. moe_router": the segments whose first part has it end in a dot. */
static const char *marked(const struct gh_plan *plan, uint32_t bit)
{
    static char text[256];

    text[0] = '\0';
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const bool has = bit == UINT32_MAX
                             ? gh_plan_leaves_wgrad(plan, i)
                             : (gh_plan_groups(plan, i) & bit) != 0;

        strcat(text, i == 0 ? "" : " ");
        strcat(text, gh_part_name(plan->segments[i].first_part));
        strcat(text, has ? "." : "");
    }
    return text;
}

static void make_parts(gh_layer_desc desc, bool delay_wgrad,
                       struct gh_plan *plan)
{
    const struct gh_plan_options options = { .granularity = GH_GRANULARITY_PART,
                                             .delay_wgrad = delay_wgrad };
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .ep_size = 4,
                                .cp_size = 2 };
    gh_model *model;

    desc.struct_size = sizeof(desc);
    desc.experts = desc.kind == GH_LAYER_MOE ? 8 : 0;
    gh_model_create(&model, NULL);
    gh_model_describe(model, &all, NULL);
    gh_model_add_layer(model, &desc, &err);
    is_status(gh_plan_make(model, &options, plan, &err), GH_OK, &err,
              "a layer has a plan, part by part");
    gh_model_destroy(model);
}

static const struct {
    gh_layer_desc layer;
    const char *wgrad, *cp, *ep;
} works[] = {
    { { .kind = GH_LAYER_DENSE }, "attn. mlp.", "attn. mlp", "attn mlp" },
    { { .kind = GH_LAYER_MAMBA }, "mamba.", "mamba.", "mamba" },
    { { .kind = GH_LAYER_MOE },
      "attn. moe_router moe_preprocess moe_dispatch moe_experts. moe_combine "
      "moe_post",
      "attn. moe_router. moe_preprocess moe_dispatch moe_experts moe_combine "
      "moe_post",
      "attn moe_router moe_preprocess. moe_dispatch. moe_experts moe_combine. "
      "moe_post" },
    { { .kind = GH_LAYER_MOE,
        .dispatcher = GH_DISPATCHER_FLEX,
        .features = GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_LATENT },
      "attn. moe_router. moe_preprocess. moe_dispatch moe_experts. "
      "moe_combine moe_post.",
      "attn. moe_router. moe_preprocess moe_dispatch moe_experts moe_combine "
      "moe_post",
      "attn moe_router moe_preprocess moe_dispatch. moe_experts moe_combine. "
      "moe_post" },
    { { .kind = GH_LAYER_MOE,
        .features = GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP },
      "attn. moe_router moe_preprocess moe_dispatch moe_experts. "
      "moe_combine. moe_post",
      "attn. moe_router. moe_preprocess moe_dispatch moe_experts moe_combine "
      "moe_post",
      "attn moe_router moe_preprocess. moe_dispatch. moe_experts moe_combine. "
      "moe_post" },
};

static void test_what_a_segment_does_besides(void)
{
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        struct gh_plan plan;

        make_parts(works[i].layer, true, &plan);
        is_str(marked(&plan, UINT32_MAX), works[i].wgrad,
               "row %zu: parts that leave weight gradients", i);
        is_str(marked(&plan, 1), works[i].cp,
               "row %zu: parts that communicate over a sequence", i);
        is_str(marked(&plan, 2), works[i].ep,
               "row %zu: parts that communicate among the experts", i);
        gh_plan_free(&plan);
    }
}

static void test_nothing_is_done_besides_that_is_not_said(void)
{
    gh_model *model = model_of(1, 1);
    struct gh_plan plan;

    make_parts((gh_layer_desc){ .kind = GH_LAYER_DENSE }, false, &plan);
    is_str(marked(&plan, UINT32_MAX), "attn mlp",
           "without a delay no weight gradient is left");
    gh_plan_free(&plan);
    make(model, 0, GH_GRANULARITY_LAYER, &plan);
    is_int(gh_plan_groups(&plan, 0), 0,
           "a group of unknown size is not communicated in");
    gh_plan_free(&plan);
    gh_model_destroy(model);
    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_MOE, DROP_AND_PAD, 0);
    make(model, 0, GH_GRANULARITY_LAYER, &plan);
    is_int(gh_plan_groups(&plan, 0), 0, "nor one of experts");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

static void test_sizes_of_groups(void)
{
    const struct gh_plan_options overlap = { .granularity =
                                                 GH_GRANULARITY_LAYER,
                                             .ep_overlap = true };
    gh_model_desc all = { .struct_size = sizeof(all), .ep_size = 3 };
    struct gh_plan plan;
    gh_model *model;

    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    gh_model_describe(model, &all, NULL);
    is_status(make(model, ATTN, GH_GRANULARITY_LAYER, &plan), GH_ERR_CONFIG,
              &err, "experts that a group cannot share evenly are refused");
    is_str(err.text,
           "layer 0: its 8 experts are divided among an ep_size of 3; give a "
           "size that leaves no remainder",
           "with both numbers");
    all.ep_size = 1;
    gh_model_describe(model, &all, NULL);
    is_status(gh_plan_make(model, &overlap, &plan, &err), GH_ERR_CONFIG, &err,
              "so is EP overlap in a group of one");
    ok(strstr(err.text, "an ep_size of 1 has no communication to hide") != NULL,
       "which has nothing to hide: %s", err.text);
    all.ep_size = 2;
    gh_model_describe(model, &all, NULL);
    is_status(gh_plan_make(model, &overlap, &plan, &err), GH_OK, &err,
              "a group of two has");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

/* Segments of a plan under EP overlap, as its first and last parts. */
static void test_no_segment_goes_from_one_node_into_the_next(void)
{
    static const struct {
        uint32_t scope;
        enum gh_granularity granularity;
        const char *segments;
    } rows[] = {
        { ATTN, GH_GRANULARITY_LAYER, "0-0 1-1 0-0 2-3 4-4 5-5 6-6 7-7 0-0 1-1 8-8" },
        { ATTN | ROUTER, GH_GRANULARITY_LAYER,
          "0-0 1-1 0-2 3-3 4-4 5-5 6-6 7-7 0-0 1-1 8-8" },
        { 0, GH_GRANULARITY_CHUNK, "0-0 1-1 0-3 4-4 5-5 6-6 7-7 0-0 1-1 8-8" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gh_plan_options options = {
            .scope = rows[i].scope,
            .granularity = rows[i].granularity,
            .ep_overlap = true,
        };
        char text[128] = "";
        struct gh_plan plan;
        gh_model *model;
        size_t used = 0;

        gh_model_create(&model, NULL);
        add_kind(model, GH_LAYER_DENSE, 0, 0);
        add_kind(model, GH_LAYER_MOE, 0, 0);
        add_kind(model, GH_LAYER_DENSE, 0, 0);
        add_kind(model, GH_LAYER_MAMBA, 0, 0);
        is_status(gh_plan_make(model, &options, &plan, &err), GH_OK, &err,
                  "row %zu: there is a plan", i);
        for (uint32_t s = 0; s < plan.n_segments; s++) {
            used += (size_t)snprintf(
                text + used, sizeof(text) - used, "%s%u-%u",
                s == 0 ? "" : " ", plan.segments[s].first_part,
                plan.segments[s].last_part);
        }
        is_str(text, rows[i].segments,
               "row %zu: its segments end where its nodes do", i);
        gh_plan_free(&plan);
        gh_model_destroy(model);
    }
}

/* Layers of one note may have more against them than the first of them. */
static void test_a_note_has_the_remedies_of_all_its_layers(void)
{
    const struct gh_plan_options options = { .granularity =
                                                 GH_GRANULARITY_LAYER,
                                             .ep_overlap = true };
    struct gh_plan plan;
    gh_model *model;
    char text[512] = "";

    gh_model_create(&model, NULL);
    add_kind(model, GH_LAYER_MOE, DROP_AND_PAD, 0);
    add_kind(model, GH_LAYER_MOE, 0, 0);
    gh_plan_make(model, &options, &plan, &err);
    ok(gh_plan_note_text(&plan, GH_CAUSE_OVERLAP, text, sizeof(text)) &&
           strstr(text, "layer 0 (and 1 more): ") != NULL &&
           strstr(text, "; switch off the overlap, and set a capacity and pad "
                        "to it") != NULL,
       "a note undoes what any of its layers has: %s", text);
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

static gh_status make_with_model(const gh_layer_desc *desc)
{
    const struct gh_plan_options options = { .scope = 0 };
    gh_model *model = NULL;
    struct gh_plan plan;
    gh_status status = gh_model_create(&model, &err);

    for (uint32_t i = 0; i < 3 && status == GH_OK; i++) {
        status = gh_model_add_layer(model, desc, &err);
    }
    if (status == GH_OK) {
        status = gh_plan_make(model, &options, &plan, &err);
        if (status == GH_OK) {
            gh_plan_free(&plan);
        }
    }
    gh_model_destroy(model);
    return status;
}

static void test_host_memory_that_fails(void)
{
    const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                 .name = "a layer",
                                 .family = "a_family" };
    uint32_t n = 0, silent = 0, leaks = 0;
    bool refused;

    do {
        const int64_t left = host_memory_left();
        gh_status status;

        err.text[0] = '\0';
        host_memory_refuse(++n);
        status = make_with_model(&desc);
        refused = host_memory_asked() >= n;
        silent += refused && (status != GH_ERR_NO_MEMORY ||
                              strstr(err.text, "no memory") == NULL);
        leaks += host_memory_left() != left;
    } while (refused && n < 100);
    host_memory_refuse(0);
    ok(n > 10 && n < 100, "a model and its plan have %u allocations", n - 1);
    is_int(silent, 0, "where one fails, that is said");
    is_int(leaks, 0, "and nothing is left");
}

int main(void)
{
    host_memory_begin();
    test_host_memory_that_fails();
    test_a_note_has_the_remedies_of_all_its_layers();
    test_no_segment_goes_from_one_node_into_the_next();
    test_what_a_segment_does_besides();
    test_nothing_is_done_besides_that_is_not_said();
    test_sizes_of_groups();
    test_no_layers_is_no_plan();
    test_every_scope_and_granularity_of_a_dense_model();
    test_a_chunk_is_one_segment_where_all_is_graphed();
    test_ten_thousand_layers();
    test_every_kind_resolves_as_users_know_it();
    test_what_no_layer_can_have_is_an_error();
    test_a_word_that_names_nothing_is_a_note_on_a_rank();
    test_a_word_that_is_refused_throughout_is_a_note_on_a_rank();
    test_what_a_segment_needs_of_a_host();
    test_no_refusal_is_cut();
    test_a_layer_that_contradicts_itself_has_no_plan();
    test_what_some_layers_cannot_have_is_narrowed_and_said();
    test_preprocess_is_refused_with_its_router();
    test_a_layer_that_is_offloaded_as_a_whole_is_eager();
    test_long_names_are_cut_between_characters();
    test_words_of_a_scope_do_not_depend_on_each_other();
    test_offload_follows_the_graphs();
    test_norms_that_read_what_a_graph_holds();
    test_a_depth_of_prediction_is_not_joined();
    test_ends();
    test_places_of_ends_and_depths();
    test_what_is_not_worth_recomputing_is_said();
    test_a_cause_is_noted_once_a_layer();
    is_int(host_memory_left(), 0, "no memory is left");
    return done_testing();
}
