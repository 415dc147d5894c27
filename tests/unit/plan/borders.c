/*
 * What crosses the border of a segment, and only that, is listed on both of
 * its sides.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/model.h"
#include "plan/plan.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)

static gh_error err;

/* A model of these layers, planned; false when it is refused. */
static bool plan_of(const gh_layer_kind *kinds, uint32_t n, uint32_t features,
                    const struct gh_plan_options *options, struct gh_plan *plan)
{
    gh_model *model = NULL;
    gh_status status = gh_model_create(&model, &err);

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        const bool moe = gh_kind_has(kinds[i], GH_PART_MOE_ROUTER);
        const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                     .kind = kinds[i],
                                     .features = moe ? features : 0,
                                     .experts = moe ? 8 : 0 };

        status = gh_model_add_layer(model, &desc, &err);
    }
    if (status == GH_OK) {
        status = gh_plan_make(model, options, plan, &err);
    }
    gh_model_destroy(model);
    return status == GH_OK;
}

/* "hidden residual probs"; static. */
static const char *names_of(const struct gh_plan *plan, uint32_t segment,
                            gh_side side)
{
    static char text[128];
    gh_border borders[GH_TENSOR_COUNT];
    const uint32_t n = gh_plan_borders(plan, segment, side, borders);
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                 i == 0 ? "" : " ", borders[i].name);
    }
    return text;
}

static void is_names(const struct gh_plan *plan, uint32_t segment, gh_side side,
                     const char *wanted, const char *what)
{
    is_str(names_of(plan, segment, side), wanted, "%s: %s", what,
           wanted[0] == '\0' ? "nothing" : wanted);
}

static void test_partial_captures(void)
{
    static const gh_layer_kind layers[] = { GH_LAYER_MOE, GH_LAYER_DENSE };
    struct gh_plan_options options = { .scope = ATTN | ROUTER | PREPROCESS,
                                       .granularity = GH_GRANULARITY_LAYER };
    struct gh_plan plan;

    plan_of(layers, 2, GH_FEATURE_SHARED_EXPERTS, &options, &plan);
    is_names(&plan, 0, GH_SIDE_IN, "", "what the first segment reads");
    is_names(&plan, 0, GH_SIDE_OUT,
             "hidden residual probs routing_map shared_output dispatch",
             "after preprocess");
    is_names(&plan, 1, GH_SIDE_IN,
             "hidden residual probs routing_map shared_output dispatch",
             "what the eager rest reads");
    is_names(&plan, 1, GH_SIDE_OUT, "hidden", "after the layer");
    gh_plan_free(&plan);

    plan_of(layers, 2, 0, &options, &plan);
    is_names(&plan, 0, GH_SIDE_OUT,
             "hidden residual probs routing_map dispatch",
             "without shared experts");
    gh_plan_free(&plan);

    options.scope = ATTN | ROUTER;
    plan_of(layers, 2, GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP,
            &options, &plan);
    is_names(&plan, 0, GH_SIDE_OUT, "hidden residual probs routing_map",
             "after the router, the shared experts beside the dispatch");
    gh_plan_free(&plan);

    options.scope = ATTN;
    plan_of(layers, 2, GH_FEATURE_SHARED_EXPERTS, &options, &plan);
    is_names(&plan, 0, GH_SIDE_OUT, "hidden", "after attention");
    gh_plan_free(&plan);
}

static void test_parts(void)
{
    static const gh_layer_kind layers[] = { GH_LAYER_MOE };
    static const char *const out[] = {
        "hidden",          "hidden residual probs routing_map shared_output",
        "hidden dispatch", "hidden",
        "hidden",          "hidden",
        "hidden",
    };
    static const char *const in[] = {
        "",
        "hidden",
        "hidden probs routing_map",
        "hidden probs routing_map dispatch",
        "hidden probs dispatch",
        "hidden probs routing_map dispatch",
        "hidden residual probs shared_output",
    };
    const struct gh_plan_options options = { .granularity =
                                                 GH_GRANULARITY_PART };
    struct gh_plan plan;

    plan_of(layers, 1, GH_FEATURE_SHARED_EXPERTS, &options, &plan);
    for (uint32_t i = 0; i < plan.n_segments; i++) {
        char what[48];

        snprintf(what, sizeof(what), "into %s",
                 gh_part_name(plan.segments[i].first_part));
        is_names(&plan, i, GH_SIDE_IN, in[i], what);
        snprintf(what, sizeof(what), "out of %s",
                 gh_part_name(plan.segments[i].first_part));
        is_names(&plan, i, GH_SIDE_OUT, out[i], what);
    }
    gh_plan_free(&plan);
}

static void test_a_border_tells_all(void)
{
    static const gh_layer_kind layers[] = { GH_LAYER_DENSE, GH_LAYER_MOE };
    const struct gh_plan_options options = { .scope = ROUTER,
                                             .granularity =
                                                 GH_GRANULARITY_PART };
    gh_border borders[GH_TENSOR_COUNT];
    struct gh_plan plan;

    plan_of(layers, 2, 0, &options, &plan);
    gh_plan_borders(&plan, 3, GH_SIDE_OUT, borders);
    is_int(borders[2].tensor, GH_TENSOR_PROBS, "the third out of the router");
    is_int(borders[2].element, GH_ELEMENT_PROB, "is made of probabilities,");
    is_int(borders[2].segment, 3, "written by that segment,");
    is_int(borders[2].layer, 1, "in that layer,");
    is_int(borders[2].writer, GH_PART_MOE_ROUTER, "by the router,");
    is_int(borders[2].readers,
           1u << GH_PART_MOE_PREPROCESS | 1u << GH_PART_MOE_DISPATCH |
               1u << GH_PART_MOE_EXPERTS | 1u << GH_PART_MOE_COMBINE |
               1u << GH_PART_MOE_POST,
           "and read by these");
    is_str(borders[2].shape, "[tokens, experts] or [tokens, top_k]",
           "with its shape in words");
    gh_plan_borders(&plan, 2, GH_SIDE_IN, borders);
    is_int(borders[0].segment, 1, "the hidden states are the segment's before");
    is_int(borders[0].layer, 0, "of its last layer,");
    is_int(borders[0].writer, GH_PART_MLP, "from its last part,");
    is_int(borders[0].readers, 0, "and the next layer reads them");
    gh_plan_free(&plan);
}

static void test_chunks_do_not_touch(void)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc) };
    const struct gh_plan_options options = { .granularity =
                                                 GH_GRANULARITY_CHUNK };
    struct gh_plan plan;
    gh_model *model;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, NULL);
    desc.chunk = 1;
    gh_model_add_layer(model, &desc, NULL);
    gh_plan_make(model, &options, &plan, &err);
    is_names(&plan, 1, GH_SIDE_IN, "",
             "a second chunk's input comes from outside of the model");
    is_names(&plan, 0, GH_SIDE_OUT, "hidden",
             "the first one's output goes out");
    gh_plan_free(&plan);
    gh_model_destroy(model);
}

static uint32_t bits_of(const struct gh_plan *plan, uint32_t segment,
                        gh_side side)
{
    gh_border borders[GH_TENSOR_COUNT];
    const uint32_t n = gh_plan_borders(plan, segment, side, borders);
    uint32_t bits = 0;

    for (uint32_t i = 0; i < n; i++) {
        bits |= 1u << borders[i].tensor;
    }
    return bits;
}

/* What comes in has gone out of the segment it names, and what goes out comes
 * in somewhere later, unless it leaves the model. */
static bool sides_agree(const struct gh_plan *plan)
{
    gh_border borders[GH_TENSOR_COUNT];

    for (uint32_t s = 0; s < plan->n_segments; s++) {
        uint32_t out = bits_of(plan, s, GH_SIDE_OUT), read = 0;
        uint32_t n = gh_plan_borders(plan, s, GH_SIDE_IN, borders);

        for (uint32_t i = 0; i < n; i++) {
            if (borders[i].segment >= s ||
                (bits_of(plan, borders[i].segment, GH_SIDE_OUT) &
                 1u << borders[i].tensor) == 0) {
                return false;
            }
        }
        for (uint32_t later = s + 1; later < plan->n_segments; later++) {
            n = gh_plan_borders(plan, later, GH_SIDE_IN, borders);
            for (uint32_t i = 0; i < n; i++) {
                read |= borders[i].segment == s ? 1u << borders[i].tensor : 0;
            }
        }
        if (s == plan->n_segments - 1) {
            read |= 1u << GH_TENSOR_HIDDEN;
        }
        if (out != read) {
            return false;
        }
    }
    return true;
}

static void test_both_sides(void)
{
    static const gh_layer_kind layers[] = {
        GH_LAYER_DENSE,    GH_LAYER_MOE,      GH_LAYER_MAMBA,
        GH_LAYER_MOE_ONLY, GH_LAYER_MOE,      GH_LAYER_ATTN_ONLY,
        GH_LAYER_MOE_ONLY, GH_LAYER_MLP_ONLY,
    };
    static const uint32_t features[] = {
        0,
        GH_FEATURE_SHARED_EXPERTS,
        GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP,
        GH_FEATURE_SYNC_FREE,
        GH_FEATURE_SYNC_FREE | GH_FEATURE_SHARED_EXPERTS,
    };
    uint32_t planned = 0, agreed = 0;

    for (uint32_t f = 0; f < 5; f++) {
        for (uint32_t scope = 0; scope < 64 * 3; scope++) {
            const struct gh_plan_options options = {
                .scope = scope / 3,
                .granularity = (enum gh_granularity)(scope % 3)
            };
            struct gh_plan plan;

            if (!plan_of(layers, 8, features[f], &options, &plan)) {
                continue;
            }
            planned++;
            agreed += sides_agree(&plan);
            gh_plan_free(&plan);
        }
    }
    ok(planned > 300, "%u plans of a stack of every kind of layer", planned);
    is_int(agreed, planned,
           "in each, what goes out of one segment comes into "
           "another, and nothing else does");
}

static void test_names(void)
{
    static const gh_layer_kind layers[] = { GH_LAYER_MOE };
    const struct gh_plan_options options = { .scope = ROUTER | PREPROCESS,
                                             .granularity =
                                                 GH_GRANULARITY_LAYER };
    struct gh_plan plan;

    plan_of(layers, 1, 0, &options, &plan);
#define BIT(name) (1u << GH_TENSOR_##name)
    is_int(gh_plan_names(&plan, 1, GH_FORWARD),
           BIT(NONE) | BIT(HIDDEN) | BIT(RESIDUAL) | BIT(PROBS) |
               BIT(ROUTING_MAP) | BIT(DISPATCH),
           "a forward names what goes out");
    is_int(gh_plan_names(&plan, 2, GH_BACKWARD),
           BIT(NONE) | BIT(HIDDEN) | BIT(RESIDUAL) | BIT(PROBS),
           "a backward the gradients of what came in, where there are any");
    is_int(gh_plan_names(&plan, 0, GH_BACKWARD), BIT(NONE) | BIT(HIDDEN),
           "the first one the gradient of the model's input");
    is_int(gh_plan_names(&plan, 1, GH_WGRAD), BIT(NONE),
           "and a weight gradient nothing");
    gh_plan_free(&plan);
    is_str(gh_tensor_name(GH_TENSOR_DISPATCH), "dispatch", "a tensor's name");
    is_str(gh_tensor_name(GH_TENSOR_COUNT), "?", "of none");
}

int main(void)
{
    test_partial_captures();
    test_parts();
    test_a_border_tells_all();
    test_chunks_do_not_touch();
    test_both_sides();
    test_names();
    return done_testing();
}
