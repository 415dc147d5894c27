/*
 * A plan works from what families say of layers, and kinds where none does.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/model.h"
#include "plan/plan.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

#define BIT(part) (1u << GH_PART_##part)
#define ATTN GH_SCOPE(GH_ITEM_ATTN)
#define MOE GH_SCOPE(GH_ITEM_MOE)
#define ROUTER GH_SCOPE(GH_ITEM_MOE_ROUTER)
#define PREPROCESS GH_SCOPE(GH_ITEM_MOE_PREPROCESS)
#define MAMBA GH_SCOPE(GH_ITEM_MAMBA)

static gh_error err;

/* ---- models and what their families say ---------------------------------- */

static gh_model *model_of(gh_layer_kind kind, uint32_t n, uint32_t recompute)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .kind = kind,
                           .recompute = recompute,
                           .family = "made_up" };
    gh_model *model = NULL;

    if (gh_kind_has(kind, GH_PART_MOE_ROUTER)) {
        desc.experts = 8;
        desc.features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD;
    }
    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < n; i++) {
        gh_model_add_layer(model, &desc, NULL);
    }
    return model;
}

/* A set for n layers, none of them described yet. */
static struct gh_traits_set set_of(uint32_t n)
{
    struct gh_traits_set set = { .n_layers = n };

    set.of_layer = calloc(n, sizeof(*set.of_layer));
    set.traits = calloc(n, sizeof(*set.traits));
    set.sources = calloc(1, sizeof(*set.sources));
    set.sources[0] = calloc(1, sizeof(**set.sources));
    strcpy(set.sources[0]->name, "made_up");
    set.sources[0]->file = strdup("made_up.so");
    set.n_sources = 1;
    return set;
}

/* Layer i is as its kind, but parts of it are held back. */
static struct gh_traits *hold_back(struct gh_traits_set *set, uint32_t i,
                                   gh_layer_kind kind, uint32_t parts,
                                   const char *why_not)
{
    struct gh_traits *traits = calloc(1, sizeof(*traits));

    traits->source = set->sources[0];
    traits->first = i;
    traits->n_layers = 1;
    traits->layer.n_parts = gh_kinds[kind].n_parts;
    for (uint32_t k = 0; k < gh_kinds[kind].n_parts; k++) {
        traits->layer.parts[k] = gh_kinds[kind].parts[k + 1];
        traits->layer.capturable |= 1u << traits->layer.parts[k];
    }
    traits->layer.capturable &= ~parts;
    strcpy(traits->layer.why_not, why_not);
    set->traits[set->n_traits++] = traits;
    set->of_layer[i] = traits;
    return traits;
}

static gh_status plan_with(struct gh_traits_set *set, gh_layer_kind kind,
                           uint32_t recompute, uint32_t scope,
                           enum gh_granularity granularity,
                           struct gh_plan *plan)
{
    const struct gh_plan_options options = { .scope = scope,
                                             .granularity = granularity };
    gh_model *model = model_of(kind, set->n_layers, recompute);
    gh_status status = gh_plan_make_with(model, set, &options, plan, &err);

    gh_model_destroy(model);
    return status;
}

/* The same of a whole job. */
static gh_status plan_of_job(struct gh_traits_set *set, gh_layer_kind kind,
                             uint32_t scope, struct gh_plan *plan)
{
    const struct gh_plan_options options = {
        .scope = scope, .granularity = GH_GRANULARITY_LAYER
    };
    const gh_model_desc all = { .struct_size = sizeof(all),
                                .flags = GH_MODEL_WHOLE };
    gh_model *model = model_of(kind, set->n_layers, 0);
    gh_status status;

    gh_model_describe(model, &all, NULL);
    status = gh_plan_make_with(model, set, &options, plan, &err);
    gh_model_destroy(model);
    return status;
}

/* "attn* moe_router* | moe_preprocess ...": a star is a graphed part, and a
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

            strcat(text, gh_part_name(parts[k]));
            strcat(text, at->mode == GH_SEGMENT_GRAPHED ? "*" : "");
            if (at->last_layer == i && at->last_part == parts[k]) {
                strcat(text, s + 1 < plan->n_segments ? " | " : "");
                s++;
            } else {
                strcat(text, " ");
            }
        }
    }
    return text;
}

/* ---- what is held back --------------------------------------------------- */

#define SENTENCE "its experts are somebody else's"
#define REST "moe_dispatch moe_experts moe_combine moe_post"

static const struct {
    uint32_t held_back, scope;
    const char *drawn;
} moe_rows[] = {
    { 0, 0,
      "attn* moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    { BIT(MOE_EXPERTS), 0, "attn* moe_router* moe_preprocess* | " REST },
    { BIT(MOE_EXPERTS), ATTN | ROUTER | PREPROCESS,
      "attn* moe_router* moe_preprocess* | " REST },
    { BIT(MOE_PREPROCESS), 0, "attn* moe_router* | moe_preprocess " REST },
    { BIT(MOE_ROUTER), 0, "attn* | moe_router moe_preprocess " REST },
    { BIT(ATTN), 0,
      "attn | moe_router* moe_preprocess* moe_dispatch* moe_experts* "
      "moe_combine* moe_post*" },
    { BIT(MOE_POST), MOE | ATTN, NULL },
    { BIT(MOE_ROUTER), ROUTER, NULL },
    { BIT(MOE_PREPROCESS), ROUTER | PREPROCESS, NULL },
    { BIT(ATTN), ATTN, NULL },
};

static void test_parts_of_experts_that_are_held_back(void)
{
    for (size_t i = 0; i < sizeof(moe_rows) / sizeof(moe_rows[0]); i++) {
        struct gh_traits_set set = set_of(1);
        struct gh_plan plan;
        gh_status status;

        hold_back(&set, 0, GH_LAYER_MOE, moe_rows[i].held_back, SENTENCE);
        status = plan_of_job(&set, GH_LAYER_MOE, moe_rows[i].scope, &plan);
        ok(set.n_layers == 0 && set.of_layer == NULL,
           "row %zu: the plan has taken the set over", i);
        if (moe_rows[i].drawn == NULL) {
            is_status(status, GH_ERR_CONFIG, &err,
                      "row %zu: what no layer can have is an error", i);
            ok(strstr(err.text,
                      "keeps it eager: " SENTENCE
                      "; describe the layer by another family, or ") != NULL,
               "row %zu: in the words of the family: %s", i, err.text);
            continue;
        }
        is_status(status, GH_OK, &err, "row %zu: there is a plan", i);
        is_str(drawn(&plan), moe_rows[i].drawn, "row %zu: as it should be", i);
        gh_plan_free(&plan);
    }
}

static void test_a_rule_comes_before_the_family(void)
{
    struct gh_traits_set set = set_of(1);
    struct gh_plan plan;

    hold_back(&set, 0, GH_LAYER_DENSE, BIT(ATTN), "its attention is odd");
    plan_with(&set, GH_LAYER_DENSE, GH_MODULE_LAYER, 0, GH_GRANULARITY_PART,
              &plan);
    ok(strstr(plan.segments[0].reason, "recomputed as a whole") != NULL,
       "a layer that is recomputed as a whole is eager for that, whatever "
       "its family says");
    gh_plan_free(&plan);
}

static void test_runs_have_one_sentence(void)
{
    static const char *const odd = "its attention is odd";
    struct gh_traits_set set = set_of(4);
    struct gh_plan plan;
    char note[512];

    for (uint32_t i = 0; i < 4; i++) {
        hold_back(&set, i, GH_LAYER_ATTN_ONLY, i < 3 ? BIT(ATTN) : 0,
                  i < 2    ? odd
                  : i == 2 ? "its attention is odder"
                           : "");
    }
    is_status(plan_with(&set, GH_LAYER_ATTN_ONLY, 0, ATTN, GH_GRANULARITY_CHUNK,
                        &plan),
              GH_OK, &err, "what three layers hold back is narrowed");
    is_str(drawn(&plan), "attn attn | attn | attn*",
           "eager layers with one sentence are one segment, another sentence "
           "begins another");
    is_str(plan.segments[0].reason, odd, "the first has the first sentence");
    is_str(plan.segments[1].reason, "its attention is odder",
           "and the second the second");
    ok(gh_plan_note_text(&plan, GH_CAUSE_FAMILY, note, sizeof(note)) &&
           strstr(note,
                  "layer 0 (and 2 more): family made_up (made_up.so) keeps "
                  "it eager: its attention is odd; describe") == note,
       "the note has the first and how many more: %s", note);
    gh_plan_free(&plan);
}

static void keep_text(void *user, const char *text, size_t bytes)
{
    char *all = user;
    const size_t used = strlen(all);

    if (used + bytes < 8192) {
        memcpy(all + used, text, bytes);
        all[used + bytes] = '\0';
    }
}

/* Brackets that are open at the end; -1: one was closed that was not open. */
static int open_brackets(const char *text)
{
    int open = 0;

    for (; *text != '\0' && open >= 0; text++) {
        open += *text == '{' || *text == '[';
        open -= *text == '}' || *text == ']';
    }
    return open;
}

static void test_json_of_families(void)
{
    struct gh_traits_set set = set_of(4);
    static char text[8192];
    struct gh_plan plan;

    for (uint32_t i = 0; i < 2; i++) {
        struct gh_traits *traits = hold_back(&set, i, GH_LAYER_DENSE, 0, "");

        traits->n_layers = 2;
        set.of_layer[i + 2] = traits;
    }
    text[0] = '\0';
    plan_with(&set, GH_LAYER_DENSE, 0, ATTN, GH_GRANULARITY_LAYER, &plan);
    gh_plan_write(&plan, GH_FORMAT_JSON, keep_text, text);
    ok(strstr(text, "\"layers\":[0,2]") != NULL &&
           strstr(text, "\"layers\":[1,3]") != NULL,
       "JSON lists the layers of each family");
    is_int(open_brackets(text), 0, "and closes what it opens");
    gh_plan_free(&plan);
}

/* An error has 255 bytes: the remedy is whole, whatever the rest. */
static void test_a_long_refusal_keeps_its_remedy(void)
{
    static const char remedy[] = "; describe the layer by another family, or "
                                 "leave attn out of the scope";
    char why[GH_FAMILY_TEXT];

    memset(why, 'w', sizeof(why));
    for (size_t bytes = 1; bytes < sizeof(why); bytes += 9) {
        struct gh_traits_set set = set_of(1);
        struct gh_plan plan;
        char *file = malloc(402);
        size_t n;

        memset(file, '/', 400);
        for (size_t i = 1; i + 1 < 400; i += 2) {
            memcpy(file + i, "\xc3\xa9", 2);
        }
        file[400] = '\0';
        free(set.sources[0]->file);
        set.sources[0]->file = file;
        why[bytes] = '\0';
        hold_back(&set, 0, GH_LAYER_DENSE, BIT(ATTN), why);
        why[bytes] = 'w';
        is_status(plan_with(&set, GH_LAYER_DENSE, 0, ATTN, GH_GRANULARITY_LAYER,
                            &plan),
                  GH_ERR_CONFIG, &err, "%zu bytes: it is refused", bytes);
        n = strlen(err.text);
        ok(n > sizeof(remedy) &&
               strcmp(err.text + n - sizeof(remedy) + 1, remedy) == 0 &&
               strstr(err.text, "family made_up") != NULL,
           "%zu bytes: with the family and all of the remedy", bytes);
        ok((strstr(err.text, "(...\xc3\xa9") != NULL) == (bytes <= 109),
           "%zu bytes: and whole characters of the file's end, where there is "
           "room: %s",
           bytes, err.text);
    }
}

/* ---- other parts --------------------------------------------------------- */

static void test_parts_in_another_order(void)
{
    static const gh_part parts[] = { GH_PART_MLP, GH_PART_MAMBA, GH_PART_ATTN };
    struct gh_traits_set set = set_of(2);
    struct gh_traits *traits = hold_back(&set, 0, GH_LAYER_DENSE, 0, "");
    gh_border borders[GH_TENSOR_COUNT];
    struct gh_plan plan;

    traits->layer.n_parts = 3;
    memcpy(traits->layer.parts, parts, sizeof(parts));
    traits->layer.capturable = BIT(MLP) | BIT(MAMBA) | BIT(ATTN);
    is_status(plan_with(&set, GH_LAYER_DENSE, 0, MAMBA | ATTN,
                        GH_GRANULARITY_LAYER, &plan),
              GH_OK, &err, "a dense layer may have a Mamba part by its family");
    is_str(drawn(&plan), "mlp | mamba* attn* | attn* | mlp",
           "parts come in the order of the family, then of the kind");
    is_int(gh_plan_borders(&plan, 0, GH_SIDE_OUT, borders), 1,
           "one tensor leaves the first segment");
    is_int(borders[0].readers, BIT(MAMBA),
           "which the part reads that the family has next");
    ok(gh_plan_covers(&plan, &plan.segments[1], 0, GH_PART_ATTN) &&
           !gh_plan_covers(&plan, &plan.segments[1], 0, GH_PART_MLP),
       "a segment covers the parts between its ends, by their places");
    gh_plan_free(&plan);
}

/* A chunk of one dense layer with an embedding: what the family gives it, and
 * what it holds back. */
static const struct {
    uint32_t features, parts, held_back;
    const char *says; /* what is drawn, or the error */
} ends[] = {
    { GH_FEATURE_EMBEDDING, BIT(EMBEDDING), 0, "embedding* attn* mlp*" },
    { GH_FEATURE_EMBEDDING, BIT(EMBEDDING), BIT(EMBEDDING),
      "embedding | attn* mlp*" },
    { GH_FEATURE_EMBEDDING, BIT(EMBEDDING), BIT(ATTN),
      "embedding attn | mlp*" },
    { GH_FEATURE_EMBEDDING, 0, 0, "attn* mlp*" },
    { 0, BIT(EMBEDDING), 0,
      "layer 0: its family gives it an embedding or a head, which its features "
      "do not name; name another family, or the feature" },
};

static void test_ends(void)
{
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const struct gh_plan_options options = { .granularity =
                                                     GH_GRANULARITY_CHUNK };
        const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                     .family = "made_up",
                                     .features = ends[i].features };
        struct gh_traits_set set = set_of(1);
        gh_family_layer *layer =
            &hold_back(&set, 0, GH_LAYER_DENSE, 0, "")->layer;
        struct gh_plan plan;
        gh_model *model = NULL;
        gh_status status;

        if (ends[i].parts != 0) {
            memmove(layer->parts + 1, layer->parts, 2 * sizeof(gh_part));
            layer->parts[0] = GH_PART_EMBEDDING;
            layer->n_parts = 3;
            layer->capturable |= BIT(EMBEDDING);
        }
        layer->capturable &= ~ends[i].held_back;
        if (ends[i].held_back != 0) {
            strcpy(layer->why_not, "it is odd");
        }
        gh_model_create(&model, NULL);
        gh_model_add_layer(model, &desc, &err);
        status = gh_plan_make_with(model, &set, &options, &plan, &err);
        is_str(status == GH_OK ? drawn(&plan) : err.text, ends[i].says,
               "row %zu: what the family says of the embedding", i);
        ok(status != GH_OK || ends[i].held_back == 0 ||
               strcmp(plan.segments[0].reason, "it is odd") == 0,
           "row %zu: in its words", i);
        if (status == GH_OK) {
            gh_plan_free(&plan);
        }
        gh_model_destroy(model);
    }
}

static void test_a_scope_that_only_a_family_has(void)
{
    struct gh_traits_set set = set_of(1);
    struct gh_plan plan;

    hold_back(&set, 0, GH_LAYER_MLP_ONLY, 0, "");
    is_status(
        plan_with(&set, GH_LAYER_DENSE, 0, ATTN, GH_GRANULARITY_LAYER, &plan),
        GH_ERR_CONFIG, &err,
        "a part that the family takes from a kind cannot be captured");
    ok(strstr(err.text, "scope attn: no layer of this rank has one") != NULL,
       "as where no kind has it: %s", err.text);
}

/* All that a family may say of a layer. */
static void test_what_is_printed_of_a_family(void)
{
    struct gh_traits_set set = set_of(1);
    struct gh_traits *traits =
        hold_back(&set, 0, GH_LAYER_DENSE, BIT(MLP), "it syncs");
    static char text[8192];
    struct gh_plan plan;

    strcpy(traits->layer.note, "a note");
    traits->layer.n_tensors = 2;
    strcpy(traits->names[0], "mask");
    traits->layer.tensors[0].parts = BIT(ATTN) | BIT(MLP);
    strcpy(traits->names[1], "table");
    traits->layer.tensors[1].parts = BIT(MLP);
    traits->layer.n_nodes = 2;
    traits->layer.nodes[0] = (gh_family_node){ .first = GH_PART_ATTN,
                                               .last = GH_PART_ATTN };
    traits->layer.nodes[1] = (gh_family_node){ .first = GH_PART_MLP,
                                               .last = GH_PART_MLP,
                                               .lane = GH_LANE_COMM };
    is_status(plan_with(&set, GH_LAYER_DENSE, 0, ATTN, GH_GRANULARITY_LAYER,
                        &plan),
              GH_OK, &err, "a layer of a family");
    text[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_TEXT, keep_text, text);
    is_str(strstr(text, "family "),
           "family made_up: layer 0: attn mlp\n"
           "  a note\n"
           "  eager mlp: it syncs\n"
           "  reads mask in attn mlp\n"
           "  reads table in mlp\n"
           "  nodes compute attn, comm mlp\n",
           "is told in full");
    plan.traits.traits[0]->layer.n_nodes = 1;
    plan.traits.traits[0]->layer.nodes[0].last = GH_PART_MLP;
    plan.traits.traits[0]->n_layers = 3;
    text[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_TEXT, keep_text, text);
    ok(strstr(text, "family made_up: layer 0 (and 2 more): attn mlp\n") &&
           strstr(text, "  nodes compute attn..mlp\n") != NULL,
       "several layers and parts are one line: %s", text);
    plan.traits.traits[0]->n_layers = 1;
    text[0] = '\0';
    gh_plan_write(&plan, GH_FORMAT_JSON, keep_text, text);
    ok(strstr(text,
              "\"families\":[\n{\"family\":\"made_up\",\"file\":"
              "\"made_up.so\",\"layers\":[0],\"parts\":[\"attn\",\"mlp\"],"
              "\"capturable\":[\"attn\"],\"why_not\":\"it syncs\","
              "\"note\":\"a note\",\"tensors\":[{\"name\":\"mask\","
              "\"parts\":[\"attn\",\"mlp\"]},{\"name\":\"table\","
              "\"parts\":[\"mlp\"]}],\"nodes\":[{\"lane\":\"compute\","
              "\"first\":\"attn\",\"last\":\"mlp\"}]}") != NULL,
       "also for programs: %s", text);
    gh_plan_free(&plan);
}

/* What a family says, where there is hardly room. */
static void test_sentences_that_are_cut(void)
{
    static const struct {
        const char *why;
        size_t bytes;
        const char *text;
    } cases[] = {
        { "a bc d", 7, "a bc d" }, { "a bc d", 6, "a..." },
        { "a bc d", 5, "a..." },   { "a bc d", 4, "a b" },
        { "a bc d", 3, "a " },     { "a bc d", 1, "" },
        { "abcdef", 6, "abcde" },  { "abcd ef", 7, "abcd e" },
        { "abc def", 7, "abc..." },
    };
    struct gh_traits traits = { .source = NULL };
    const struct gh_layer layer = { .traits = &traits };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[16] = "xxxxxxxxxxxxxxx";

        strcpy(traits.layer.why_not, cases[i].why);
        gh_cause_text(GH_CAUSE_FAMILY, &layer, text, cases[i].bytes);
        is_str(text, cases[i].text, "\"%s\" in %zu bytes", cases[i].why,
               cases[i].bytes);
    }
}

int main(void)
{
    test_what_is_printed_of_a_family();
    test_sentences_that_are_cut();
    test_parts_of_experts_that_are_held_back();
    test_a_rule_comes_before_the_family();
    test_runs_have_one_sentence();
    test_json_of_families();
    test_a_long_refusal_keeps_its_remedy();
    test_parts_in_another_order();
    test_ends();
    test_a_scope_that_only_a_family_has();
    return done_testing();
}
