/*
 * A plan is printed for people, layers that are alike once, and for programs,
 * with all that there is to know.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/model.h"
#include "plan/plan.h"
#include "tap/tap.h"

#include <string.h>

#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define MLP GH_SCOPE(GH_ITEM_MLP)
#define MOE GH_SCOPE(GH_ITEM_MOE)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define N(layers) (sizeof(layers) / sizeof((layers)[0]))

static gh_error err;
static char printed[16384];

static void keep(void *user, const char *text, size_t bytes)
{
    size_t used = strlen(printed);

    (void)user;
    if (used + bytes < sizeof(printed)) {
        memcpy(printed + used, text, bytes);
        printed[used + bytes] = '\0';
    }
}

static void make(const gh_layer_desc *layers, size_t n, uint32_t scope,
                 enum gh_granularity granularity, struct gh_plan *plan)
{
    const struct gh_plan_options options = { .scope = scope,
                                             .granularity = granularity };
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (size_t i = 0; i < n; i++) {
        gh_layer_desc desc = layers[i];

        desc.struct_size = sizeof(desc);
        if (desc.kind == GH_LAYER_MOE) {
            desc.experts = 8;
        }
        is_status(gh_model_add_layer(model, &desc, &err), GH_OK, &err,
                  "layer %zu is taken", i);
    }
    is_status(gh_plan_make(model, &options, plan, &err), GH_OK, &err,
              "and the model has a plan");
    gh_model_destroy(model);
}

static const char *print(const gh_layer_desc *layers, size_t n, uint32_t scope,
                         enum gh_granularity granularity, gh_format format)
{
    struct gh_plan plan;

    printed[0] = '\0';
    make(layers, n, scope, granularity, &plan);
    gh_plan_write(&plan, format, keep, NULL);
    gh_plan_free(&plan);
    return printed;
}

/* ---- for people ---------------------------------------------------------- */

static void test_a_segment_is_a_line(void)
{
    static const gh_layer_desc layers[] = { { .name = "a \"quoted\" name" } };
    static const gh_layer_desc breaks[] = { { .name = "a\nb" } };

    is_str(print(breaks, 1, ATTN, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT),
           "2 segments, granularity layer\n"
           "       0  chunk 0  graphed  a?b attn: the scope names it\n"
           "       1  chunk 0  eager    a?b mlp: the scope does not name it\n",
           "as text, a segment is a line, whatever its name holds");

    is_str(print(layers, 1, ATTN, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT),
           "2 segments, granularity layer\n"
           "       0  chunk 0  graphed  a \"quoted\" name attn: the scope "
           "names it\n"
           "       1  chunk 0  eager    a \"quoted\" name mlp: the scope does "
           "not name it\n",
           "as text, a segment is a line, with its reason");
}

static const gh_layer_desc joined[] = {
    { .name = "a", .offload = GH_MODULE_ATTN_NORM },
    { .name = "b" },
    { .kind = GH_LAYER_MOE,
      .name = "c",
      .offload = GH_MODULE_ATTN_NORM | GH_MODULE_CORE_ATTN |
                 GH_MODULE_MLP_NORM | GH_MODULE_EXPERT_FC1 },
};

static void test_notes_are_on_top(void)
{
    is_str(print(joined, N(joined), ATTN | MLP, GH_GRANULARITY_CHUNK,
                 GH_FORMAT_TEXT),
           "2 segments, granularity chunk\n"
           "note: a: its attention norm reads what goes into a graph or out "
           "of one, which stays on the device; leave attn_norm out of the "
           "offloaded modules\n"
           "note: c: its MLP norm reads what goes into a graph or out of one, "
           "which stays on the device; leave mlp_norm out of the offloaded "
           "modules\n"
           "       0  chunk 0  graphed  a attn..c attn: the scope names it\n"
           "       1  chunk 0  eager    c moe_router..moe_post: the scope does "
           "not name it\n"
           "offload a: off attn_norm\n"
           "offload c: in the graph attn_norm core_attn beside it expert_fc1 "
           "off mlp_norm\n",
           "notes come first; a segment across layers has both ends, and "
           "offload its three ways");
}

/* A run ends with its chunk, and where a layer is treated otherwise. */
static void test_layers_that_are_alike_are_one_line(void)
{
    static const gh_layer_desc layers[] = {
        { .chunk = 0 },
        { .chunk = 0 },
        { .chunk = 0 },
        { .chunk = 1 },
        { .chunk = 1, .recompute = GH_MODULE_LAYER },
        { .chunk = 1 },
        { .chunk = 1 },
    };
    struct gh_plan plan;
    const char *line = printed;
    uint32_t lines = 0;

    make(layers, N(layers), 0, GH_GRANULARITY_LAYER, &plan);
    printed[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_TEXT, keep, NULL);
    is_str(strchr(strchr(printed, '\n') + 1, '\n') + 1,
           "    0..2  chunk 0  graphed  layer 0..2 (3 alike) attn..mlp: no "
           "scope is set, which means whole layers\n"
           "       3  chunk 1  graphed  layer 3 attn..mlp: no scope is set, "
           "which means whole layers\n"
           "       4  chunk 1  eager    layer 4 attn..mlp: it is recomputed as "
           "a whole, in the backward\n"
           "    5..6  chunk 1  graphed  layer 5..6 (2 alike) attn..mlp: no "
           "scope is set, which means whole layers\n",
           "layers in a row that are treated alike are one line");
    printed[0] = '\0';
    gh_plan_write_all(&plan, keep, NULL);
    ok(strstr(printed, "alike") == NULL, "with all shown, none stands for "
                                         "others");
    while ((line = strstr(line, "  chunk ")) != NULL) {
        line++;
        lines++;
    }
    is_int(lines, plan.n_segments, "and every segment has a line");
    gh_plan_free(&plan);
}

static void test_a_run_of_several_segments(void)
{
    static const gh_layer_desc layers[] = { { .kind = GH_LAYER_DENSE },
                                            { .kind = GH_LAYER_MOE },
                                            { .kind = GH_LAYER_MOE },
                                            { .kind = GH_LAYER_MOE } };

    print(layers, 4, ATTN | ROUTER, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT);
    is_str(strchr(printed, '\n') + 1,
           "       0  chunk 0  graphed  layer 0 attn: the scope names it\n"
           "       1  chunk 0  eager    layer 0 mlp: the scope does not name "
           "it\n"
           "  2,4..6  chunk 0  graphed  layer 1..3 (3 alike) "
           "attn..moe_router: the scope names it\n"
           "  3,5..7  chunk 0  eager    layer 1..3 (3 alike) "
           "moe_preprocess..moe_post: the scope does not name it\n",
           "layers of several segments are a line for each, with its numbers");
    print(layers, 3, ATTN | ROUTER, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT);
    ok(strstr(printed, "     2,4  chunk 0  graphed  layer 1..2 (2 alike)") !=
           NULL,
       "of two layers there are two numbers");
    print(layers + 1, 3, ROUTER, GH_GRANULARITY_CHUNK, GH_FORMAT_TEXT);
    is_str(strchr(printed, '\n') + 1,
           "       0  chunk 0  eager    layer 0 attn: the scope does not name "
           "it\n"
           "     1,3  chunk 0  graphed  layer 0..1 (2 alike) moe_router: the "
           "scope names it\n"
           "     2,4  chunk 0  eager    layer 0..1 (2 alike) "
           "moe_preprocess..attn of the next: the scope does not name it\n"
           "       5  chunk 0  graphed  layer 2 moe_router: the scope names "
           "it\n"
           "       6  chunk 0  eager    layer 2 moe_preprocess..moe_post: the "
           "scope does not name it\n",
           "and segments that reach into the next layer are alike, too");
}

/* What is as long and begins alike may end elsewhere. */
static void test_what_is_not_alike(void)
{
    static const gh_layer_desc reasons[] = { { .recompute = GH_MODULE_LAYER },
                                             { .offload = GH_MODULE_LAYER } };
    static const gh_layer_desc reaches[] = { { .kind = GH_LAYER_MOE },
                                             { .kind = GH_LAYER_MOE },
                                             { .kind = GH_LAYER_DENSE },
                                             { .kind = GH_LAYER_MOE },
                                             { .kind = GH_LAYER_MOE } };

    print(reasons, N(reasons), 0, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT);
    ok(strstr(printed, "alike") == NULL,
       "layers that are eager for other reasons are not alike");
    print(reaches, N(reaches), ROUTER, GH_GRANULARITY_CHUNK, GH_FORMAT_TEXT);
    ok(strstr(printed, "9 segments") != NULL &&
           strstr(printed, "alike") == NULL,
       "nor are segments that reach over another number of layers");
}

/* Who looks for a layer by its name finds it. */
static void test_a_name_of_its_own_is_shown(void)
{
    static const gh_layer_desc layers[] = {
        { .name = "h.0" },  { .name = "h.1" }, { .name = "tail" },
        { .name = "last" }, { .name = "x" },   { .name = "x" },
        { .name = "x1" },
    };

    print(layers, N(layers), 0, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT);
    ok(strstr(printed, "    0..1  chunk 0  graphed  h.0..1 (2 alike) attn") !=
           NULL,
       "names that differ in the number at their end are a run");
    ok(strstr(printed, "       3  chunk 0  graphed  last attn..mlp") != NULL,
       "another name is a line of its own");
    ok(strstr(printed, "    4..5  chunk 0  graphed  x (2 alike) attn") != NULL,
       "equal names are a run");
    ok(strstr(printed, "       6  chunk 0  graphed  x1 attn..mlp") != NULL,
       "and one without a number is not one with");
}

static void test_offload_of_layers_that_are_alike(void)
{
    static const gh_layer_desc layers[] = {
        { .offload = GH_MODULE_MLP },
        { .offload = GH_MODULE_MLP },
        { .offload = GH_MODULE_CORE_ATTN },
        { .offload = GH_MODULE_CORE_ATTN | GH_MODULE_ATTN_NORM },
        { .offload = 0 },
        { .offload = 0 },
        { .offload = GH_MODULE_MLP, .recompute = GH_MODULE_LAYER },
        { .offload = GH_MODULE_CORE_ATTN, .recompute = GH_MODULE_LAYER },
    };

    print(layers, N(layers), 0, GH_GRANULARITY_LAYER, GH_FORMAT_TEXT);
    is_str(strstr(printed, "\noffload ") + 1,
           "offload layer 0..1 (2 alike): in the graph mlp\n"
           "offload layer 2: in the graph core_attn\n"
           "offload layer 3: in the graph core_attn off attn_norm\n"
           "offload layer 6: beside it mlp\n"
           "offload layer 7: beside it core_attn\n",
           "layers that offload alike are one line, and others none");
}

/* ---- for programs -------------------------------------------------------- */

static void test_json(void)
{
    static const gh_layer_desc layers[] = { { .name = "a \"quoted\" name" } };

    is_str(
        print(layers, 1, ATTN, GH_GRANULARITY_LAYER, GH_FORMAT_JSON),
        "{\"granularity\":\"layer\",\"segments\":[\n"
        "{\"index\":0,\"chunk\":0,\"mode\":\"graphed\",\"first_layer\":0,"
        "\"last_layer\":0,\"first_part\":\"attn\",\"last_part\":\"attn\","
        "\"layer\":\"a \\\"quoted\\\" name\",\"reason\":\"the scope "
        "names it\",\"remedy\":null,\"passes\":[\"forward\",\"backward\"],"
        "\"groups\":[],\"in\":[],\"out\":[{\"tensor\":"
        "\"hidden\",\"element\":\"activation\",\"shape\":\"[tokens, "
        "hidden]\",\"layer\":0,\"writer\":\"attn\","
        "\"readers\":[\"mlp\"]}]},\n"
        "{\"index\":1,\"chunk\":0,\"mode\":\"eager\",\"first_layer\":0,"
        "\"last_layer\":0,\"first_part\":\"mlp\",\"last_part\":\"mlp\","
        "\"layer\":\"a \\\"quoted\\\" name\",\"reason\":\"the scope "
        "does not name it\",\"remedy\":\"scope attn,mlp has it captured\","
        "\"passes\":[\"forward\",\"backward\"],\"groups\":[],"
        "\"in\":[{\"tensor\":\"hidden\",\"segment\":0}],\"out\":[{\"tensor\":"
        "\"hidden\",\"element\":\"activation\",\"shape\":\"[tokens, "
        "hidden]\",\"layer\":0,\"writer\":\"mlp\","
        "\"readers\":[]}]}\n],\"layers\":[\n"
        "{\"index\":0,\"chunk\":0,\"kind\":\"dense\",\"name\":\"a "
        "\\\"quoted\\\" name\"}\n],\"offload\":[],"
        "\"recompute\":[],\"families\":[],\"notes\":[]}\n",
        "as JSON, a segment has its remedy and borders, a layer its kind, "
        "and names are quoted");
}

static void test_json_of_layers_that_are_joined(void)
{
    print(joined, N(joined), ATTN | MLP, GH_GRANULARITY_CHUNK, GH_FORMAT_JSON);
    ok(strstr(printed, "\"last_part\":\"moe_post\",\"layer\":\"c\",") != NULL,
       "as JSON, a segment has the name of its first layer");
    ok(strstr(printed, "{\"index\":2,\"chunk\":0,\"kind\":\"moe\",\"name\":"
                       "\"c\"}") != NULL,
       "every layer its kind");
    ok(strstr(printed,
              "{\"index\":2,\"layer\":\"c\",\"in_graph\":[\"attn_norm\","
              "\"core_attn\"],\"beside\":[\"expert_fc1\"],\"off\":"
              "[\"mlp_norm\"]}") != NULL,
       "and offload the three lists");
    ok(strstr(printed, "offloaded modules\",\n\"c: its MLP norm") != NULL,
       "and two notes are a list");
}

static void test_json_of_what_is_recomputed(void)
{
    static const gh_layer_desc layers[] = {
        { .recompute = GH_MODULE_CORE_ATTN | GH_MODULE_MLP },
        { .kind = GH_LAYER_MOE },
        { .kind = GH_LAYER_MOE,
          .name = "c",
          .features = GH_FEATURE_SHARED_EXPERTS,
          .recompute = GH_MODULE_MLP_NORM | GH_MODULE_MOE_ACT |
                       GH_MODULE_SHARED_EXPERTS },
        { .recompute = GH_MODULE_LAYER },
    };

    print(layers, N(layers), ATTN | ROUTER, GH_GRANULARITY_LAYER,
          GH_FORMAT_JSON);
    ok(strstr(printed, "\"recompute\":[\n"
                       "{\"index\":0,\"layer\":\"layer 0\",\"in_graph\":"
                       "[\"core_attn\"],\"beside\":[\"mlp\"],\"kept\":[]},\n"
                       "{\"index\":2,\"layer\":\"c\",\"in_graph\":"
                       "[\"shared_experts\"],\"beside\":[\"moe_act\"],"
                       "\"kept\":[\"mlp_norm\"]},\n"
                       "{\"index\":3,\"layer\":\"layer 3\",\"in_graph\":[],"
                       "\"beside\":[\"layer\"],\"kept\":[]}]") != NULL,
       "as JSON, each layer that recomputes says what, where and what is "
       "better kept");
}

static void test_json_of_what_experts_hand_on(void)
{
    static const gh_layer_desc layers[] = { { .kind = GH_LAYER_MOE } };

    print(layers, 1, ROUTER, GH_GRANULARITY_LAYER, GH_FORMAT_JSON);
    ok(strstr(printed, "{\"tensor\":\"routing_map\",\"element\":\"mask\","
                       "\"shape\":\"[tokens, experts] or [tokens, top_k]\","
                       "\"layer\":0,\"writer\":\"moe_router\","
                       "\"readers\":[\"moe_preprocess\",\"moe_dispatch\","
                       "\"moe_combine\"]}") != NULL,
       "a border has its writer and all readers");
    ok(strstr(printed, "\"element\":\"prob\"") != NULL,
       "and says what it is made of");
    ok(strstr(printed, "\"remedy\":\"scope moe_router,moe_preprocess has it "
                       "captured\"") != NULL,
       "a remedy names all that it takes");
}

/* ---- remedies ------------------------------------------------------------ */

static void test_remedies(void)
{
    static const gh_layer_desc layers[] = {
        { .kind = GH_LAYER_MOE,
          .features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD },
        { .kind = GH_LAYER_MOE },
    };
    static const gh_layer_desc whole[] = { { .recompute = 0 },
                                           { .recompute = GH_MODULE_LAYER } };
    struct gh_plan plan;
    char text[512] = "";

    make(layers, 2, MOE, GH_GRANULARITY_LAYER, &plan);
    ok(!gh_plan_remedy(&plan, 0, GH_PART_MOE_ROUTER, text, sizeof(text)),
       "what is captured needs no remedy");
    gh_plan_remedy(&plan, 1, GH_PART_MOE_ROUTER, text, sizeof(text));
    is_str(text,
           "set a capacity and pad to it, or name moe_router instead of "
           "moe",
           "what moe would have held has a word of its own");
    gh_plan_remedy(&plan, 1, GH_PART_MOE_EXPERTS, text, sizeof(text));
    is_str(text, "set a capacity and pad to it",
           "what moe alone can hold has none");
    gh_plan_remedy(&plan, 1, GH_PART_ATTN, text, sizeof(text));
    is_str(text, "scope attn,moe has it captured",
           "what is not named is to be named");
    gh_plan_free(&plan);
    make(layers, 2, ATTN, GH_GRANULARITY_LAYER, &plan);
    gh_plan_remedy(&plan, 1, GH_PART_MOE_POST, text, sizeof(text));
    is_str(text,
           "scope attn,moe would not do alone: its experts get another number "
           "of tokens in every pass, and a graph has fixed shapes; set a "
           "capacity and pad to it",
           "and where that would not do, what else it takes");
    gh_plan_free(&plan);
    make(layers, 1, ROUTER, GH_GRANULARITY_LAYER, &plan);
    gh_plan_remedy(&plan, 0, GH_PART_MOE_POST, text, sizeof(text));
    is_str(text, "scope moe has it captured",
           "moe stands in the place of moe_router, which it holds");
    gh_plan_free(&plan);
    make(whole, 2, ATTN, GH_GRANULARITY_LAYER, &plan);
    gh_plan_remedy(&plan, 1, GH_PART_ATTN, text, sizeof(text));
    is_str(text, "recompute modules of the layer instead of all of it",
           "what is named and refused has the remedies of its causes");
    gh_plan_free(&plan);
}

int main(void)
{
    test_a_segment_is_a_line();
    test_notes_are_on_top();
    test_layers_that_are_alike_are_one_line();
    test_a_run_of_several_segments();
    test_what_is_not_alike();
    test_a_name_of_its_own_is_shown();
    test_offload_of_layers_that_are_alike();
    test_json();
    test_json_of_layers_that_are_joined();
    test_json_of_what_is_recomputed();
    test_json_of_what_experts_hand_on();
    test_remedies();
    return done_testing();
}
