/*
 * A plan covers every part of every layer once, and says why.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/model.h"
#include "plan/plan.h"
#include "tap/tap.h"

#include <stdlib.h>
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

static void test_a_bad_layer_is_refused(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc) };
    gh_model *model;

    is_status(gh_model_create(NULL, &err), GH_ERR_INVALID, &err,
              "a model needs somewhere to go");
    gh_model_create(&model, NULL);
    is_status(gh_model_add_layer(NULL, &desc, &err), GH_ERR_INVALID, &err,
              "a layer needs a model");
    is_status(gh_model_add_layer(model, NULL, &err), GH_ERR_INVALID, &err,
              "a layer needs a description");
    desc.struct_size = 4;
    is_status(gh_model_add_layer(model, &desc, &err), GH_ERR_ABI, &err,
              "a description below 0.1's size is refused");
    desc.struct_size = sizeof(desc);
    desc.kind = 77;
    is_status(gh_model_add_layer(model, &desc, &err), GH_ERR_UNSUPPORTED, &err,
              "so is an unknown kind");
    desc.kind = GH_LAYER_DENSE;
    desc.reserved = 1;
    is_status(gh_model_add_layer(model, &desc, &err), GH_ERR_INVALID, &err,
              "so is a reserved field");
    is_status(add(model, 1, NULL), GH_ERR_INVALID, &err, "chunks begin at 0");
    is_status(add(model, 0, NULL), GH_OK, &err, "layer 0 is in chunk 0");
    is_status(add(model, 2, NULL), GH_ERR_INVALID, &err,
              "no chunk is left out");
    ok(strstr(err.text, "layer 1") != NULL, "the layer is named: %s", err.text);
    is_status(add(model, 1, NULL), GH_OK, &err,
              "after a refusal the right one is accepted");
    is_status(add(model, 0, NULL), GH_ERR_INVALID, &err,
              "chunks do not go back");
    is_int(model->n_layers, 2, "what was refused left nothing behind");
    gh_model_destroy(model);
}

static void test_no_layers_is_no_plan(void)
{
    struct gh_plan plan;
    gh_model *model = model_of(0, 1);

    is_status(gh_plan_make(model, 0, GH_GRANULARITY_LAYER, &plan, &err),
              GH_ERR_INVALID, &err, "a model without layers has no plan");
    gh_model_destroy(model);
}

/* Every part of every layer once, in order, chunk by chunk. */
static bool is_whole(const struct gh_plan *plan)
{
    uint32_t part = 0;

    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];

        if (s->index != i || 2 * s->first_layer + s->first_part != part ||
            s->reason == NULL) {
            return false;
        }
        part = 2 * s->last_layer + s->last_part + 1;
    }
    return part == 2 * plan->n_layers &&
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
    { GH_SCOPE(GH_PART_ATTN), GH_GRANULARITY_LAYER, 2, "ge" },
    { GH_SCOPE(GH_PART_ATTN), GH_GRANULARITY_PART, 2, "ge" },
    { GH_SCOPE(GH_PART_MLP), GH_GRANULARITY_LAYER, 2, "eg" },
    { GH_SCOPE(GH_PART_MLP), GH_GRANULARITY_PART, 2, "eg" },
    { GH_SCOPE(GH_PART_ATTN) | GH_SCOPE(GH_PART_MLP), GH_GRANULARITY_LAYER, 1,
      "g" },
    { GH_SCOPE(GH_PART_ATTN) | GH_SCOPE(GH_PART_MLP), GH_GRANULARITY_PART, 2,
      "gg" },
};

static void test_every_scope_and_granularity(void)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct gh_plan plan;
        gh_model *model = model_of(6, 3);
        bool modes = true;

        gh_plan_make(model, shapes[i].scope, shapes[i].granularity, &plan,
                     &err);
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

static void test_ten_thousand_layers(void)
{
    struct gh_plan plan;
    gh_model *model = model_of(10000, 1);

    is_status(gh_plan_make(model, 0, GH_GRANULARITY_PART, &plan, &err), GH_OK,
              &err, "10,000 layers are planned");
    ok(is_whole(&plan), "each part of them once");
    gh_model_destroy(model);
    gh_plan_free(&plan);
}

static char printed[4096];

static void keep(void *user, const char *text, size_t bytes)
{
    size_t used = strlen(printed);

    (void)user;
    if (used + bytes < sizeof(printed)) {
        memcpy(printed + used, text, bytes);
        printed[used + bytes] = '\0';
    }
}

static void test_print(void)
{
    struct gh_plan plan;
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    add(model, 0, "a \"quoted\" name");
    gh_plan_make(model, GH_SCOPE(GH_PART_ATTN), GH_GRANULARITY_LAYER, &plan,
                 &err);
    gh_model_destroy(model);

    printed[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_TEXT, keep, NULL);
    is_str(printed,
           "2 segments, granularity layer\n"
           "    0  chunk 0  graphed  a \"quoted\" name attn: the scope names "
           "it\n"
           "    1  chunk 0  eager    a \"quoted\" name mlp: the scope does "
           "not name it\n",
           "as text, a plan is a line a segment, each with its reason");

    printed[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_JSON, keep, NULL);
    is_str(printed,
           "{\"granularity\":\"layer\",\"segments\":[\n"
           "{\"index\":0,\"chunk\":0,\"mode\":\"graphed\",\"first_layer\":0,"
           "\"last_layer\":0,\"first_part\":\"attn\",\"last_part\":\"attn\","
           "\"layer\":\"a \\u0022quoted\\u0022 name\",\"reason\":\"the scope "
           "names it\"},\n"
           "{\"index\":1,\"chunk\":0,\"mode\":\"eager\",\"first_layer\":0,"
           "\"last_layer\":0,\"first_part\":\"mlp\",\"last_part\":\"mlp\","
           "\"layer\":\"a \\u0022quoted\\u0022 name\",\"reason\":\"the scope "
           "does not name it\"}\n]}\n",
           "as JSON, the same, with names quoted");
    gh_plan_free(&plan);
}

int main(void)
{
    test_a_bad_layer_is_refused();
    test_no_layers_is_no_plan();
    test_every_scope_and_granularity();
    test_ten_thousand_layers();
    test_print();
    return done_testing();
}
