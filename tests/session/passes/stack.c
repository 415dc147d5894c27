/*
 * The family "stack": plain modules, whole or in two parts; what they are cut
 * into, that they replay, and what a plain stack has not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks/family.h>

#include "support/toy.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static gh_error err;

/* ---- the plan ------------------------------------------------------------ */

/* Five layers in two chunks: three of both parts, then one of each. */
static const gh_layer_kind kinds[] = { GH_LAYER_DENSE, GH_LAYER_DENSE,
                                       GH_LAYER_DENSE, GH_LAYER_ATTN_ONLY,
                                       GH_LAYER_MLP_ONLY };

static gh_session *open_stack(const char *scope, const char *granularity)
{
    static const char *const environment[] = { "GRAPHHOOKS_ENABLE=0",
                                               "GRAPHHOOKS_LOG=off", NULL };
    gh_model *model = NULL;
    gh_session *session = NULL;

    gh_model_create(&model, NULL);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                     .kind = kinds[i],
                                     .chunk = i > 1,
                                     .family = "stack" };

        gh_model_add_layer(model, &desc, NULL);
    }
    gh_session_open(&(gh_session_desc){ .struct_size = sizeof(gh_session_desc),
                                        .model = model,
                                        .scope = scope,
                                        .granularity = granularity,
                                        .driver = "/no/such/driver.so",
                                        .environment = environment },
                    &session, &err);
    gh_model_destroy(model);
    return session;
}

/* "G0am E1m | ...": graphed or eager, the layers, the first and last part by
 * their letters; a bar begins the next chunk. */
static void cut_of(const gh_session *session, char *text, size_t bytes)
{
    gh_segment s = { .struct_size = sizeof(s) };
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        const uint32_t n = gh_plan_segment_count(session, chunk);

        for (uint32_t i = 0; i < n && used < bytes; i++) {
            gh_plan_segment(session, chunk, i, &s, NULL);
            used += (size_t)snprintf(text + used, bytes - used, "%s%c%u%c-%u%c",
                                     used == 0 ? "" : (i == 0 ? " | " : " "),
                                     s.mode == GH_SEGMENT_GRAPHED ? 'G' : 'E',
                                     s.first_layer, "am"[s.first_part],
                                     s.last_layer, "am"[s.last_part]);
        }
    }
}

static void test_what_it_is_cut_into(void)
{
    static const struct {
        const char *scope, *granularity, *cut, *name;
    } cases[] = {
        { "", "layer", "G0a-0m G1a-1m | G2a-2m G3a-3a G4m-4m",
          "whole layers are a segment each" },
        { "", "chunk", "G0a-1m | G2a-4m", "a whole chunk is one segment" },
        { "", "part",
          "G0a-0a G0m-0m G1a-1a G1m-1m | G2a-2a G2m-2m G3a-3a "
          "G4m-4m",
          "the parts of whole layers are apart, by granularity part" },
        { "attn", "layer",
          "G0a-0a E0m-0m G1a-1a E1m-1m | G2a-2a E2m-2m G3a-3a E4m-4m",
          "of scope attn the attention is graphed and the MLP eager" },
        { "mlp", "layer",
          "E0a-0a G0m-0m E1a-1a G1m-1m | E2a-2a G2m-2m E3a-3a G4m-4m",
          "of scope mlp it is the other way round" },
        { "attn,mlp", "part",
          "G0a-0a G0m-0m G1a-1a G1m-1m | G2a-2a G2m-2m G3a-3a G4m-4m",
          "both named are both graphed, each on its own" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        gh_session *session = open_stack(cases[i].scope, cases[i].granularity);
        char cut[256];

        cut_of(session, cut, sizeof(cut));
        is_str(cut, cases[i].cut, "%s", cases[i].name);
        gh_session_close(session);
    }
}

static void test_it_replays(void)
{
    static const char *const granularities[] = { "part", "layer", "chunk" };
    static const char *const environment[] = { NULL };

    for (size_t i = 0; i < COUNT(granularities); i++) {
        const struct toy_options options = { .layers = 3,
                                             .elems = 64,
                                             .in_flight = 2,
                                             .granularity = granularities[i],
                                             .family = "stack",
                                             .environment = environment };
        const char *reason;
        struct toy toy;

        if (!toy_open(&toy, &options, &reason)) {
            skip(2, "%s", reason);
            continue;
        }
        is_status(toy_attach(&toy), GH_OK, &toy.err,
                  "a plain stack opens with granularity %s", granularities[i]);
        for (int k = 0; k < 4; k++) {
            toy_step(&toy, 3);
        }
        ok(toy_stats(&toy).replays > 0 && toy_is_exact(&toy),
           "and replays with the numbers that it must have");
        toy_close(&toy);
    }
}

/* ---- what a plain stack has not ------------------------------------------ */

/* As the library would ask, but past gh_model_add_layer(), which refuses some
 * of this by rules of its own. */
static gh_status ask(const gh_family *family, gh_layer_desc desc,
                     gh_family_layer *layer)
{
    const gh_layer_desc *layers[] = { &desc };
    const gh_family_model model = { .struct_size = sizeof(model),
                                    .n_layers = 1,
                                    .layers = layers };
    void *ctx = NULL;
    gh_status status;

    if (desc.struct_size == 0) {
        desc.struct_size = sizeof(desc);
    }
    desc.name = "a layer";
    *layer = (gh_family_layer){ .struct_size = sizeof(*layer) };
    err.text[0] = '\0';
    family->open(&model, &ctx, &err);
    status = family->layer(ctx, 0, layer, &err);
    family->close(ctx);
    return status;
}

static void test_what_it_has(const gh_family *family)
{
    static const uint32_t parts[] = { 1u << GH_PART_ATTN | 1u << GH_PART_MLP,
                                      1u << GH_PART_ATTN, 1u << GH_PART_MLP };
    static const gh_layer_kind known[] = { GH_LAYER_DENSE, GH_LAYER_ATTN_ONLY,
                                           GH_LAYER_MLP_ONLY };
    gh_family_layer layer;

    for (size_t i = 0; i < COUNT(known); i++) {
        ask(family, (gh_layer_desc){ .kind = known[i] }, &layer);
        ok(layer.capturable == parts[i] && layer.n_tensors == 0 &&
               layer.why_not[0] == '\0',
           "kind %u: its parts may all be captured, and read nothing besides "
           "their inputs",
           known[i]);
        ok(layer.n_nodes == layer.n_parts &&
               layer.nodes[0].lane == GH_LANE_COMPUTE &&
               layer.nodes[0].first == layer.parts[0] &&
               layer.nodes[0].last == layer.parts[0],
           "kind %u: each is a node, and computes", known[i]);
    }
    is_status(ask(family,
                  (gh_layer_desc){ .features = GH_FEATURE_ATTN_DROPOUT |
                                               GH_FEATURE_HIDDEN_DROPOUT },
                  &layer),
              GH_OK, &err, "dropout is the framework's, and known");
    is_status(ask(family,
                  (gh_layer_desc){ .struct_size = (uint32_t)GH_SIZE_THROUGH(
                                       gh_layer_desc, name),
                                   .recompute = GH_MODULE_MLP,
                                   .dispatcher = GH_DISPATCHER_FLEX },
                  &layer),
              GH_OK, &err, "what is behind a layer of 0.1 is not read");
}

static void test_what_it_has_not(const gh_family *family)
{
    static const struct {
        gh_layer_desc desc;
        const char *says;
    } cases[] = {
        { { .kind = GH_LAYER_MOE, .experts = 8 },
          "its kind has experts, and a plain stack has none: name gpt or mla "
          "for it" },
        { { .kind = GH_LAYER_MOE_ONLY, .experts = 8 },
          "its kind has experts, and a plain stack has none: name gpt or mla "
          "for it" },
        { { .kind = GH_LAYER_MAMBA },
          "its kind is mamba, and a plain stack has attn and mlp alone: name "
          "mamba for it" },
        { { .kind = 77 },
          "stack does not know its kind: make it dense, attn_only or "
          "mlp_only, or name another family" },
        { { .experts = 8 },
          "experts is set, and a plain stack has none: leave it 0, or name "
          "gpt or mla for it" },
        { { .dispatcher = GH_DISPATCHER_FLEX },
          "dispatcher is set, and a plain stack has no experts to send tokens "
          "to: leave it 0" },
        { { .features = GH_FEATURE_SYNC_FREE | GH_FEATURE_ATTN_DROPOUT },
          "features: a plain stack knows attn_dropout and hidden_dropout: "
          "leave the others out, or name gpt for it" },
        { { .recompute = GH_MODULE_CORE_ATTN },
          "recompute is set, and a plain stack is checkpointed by its "
          "framework, not by the plan: leave it out" },
        { { .recompute = GH_MODULE_LAYER },
          "recompute is set, and a plain stack is checkpointed by its "
          "framework, not by the plan: leave it out" },
        { { .offload = GH_MODULE_MLP_NORM },
          "offload is set, and the plan sees no modules inside of a plain "
          "stack: leave it out, or name gpt for it" },
    };
    gh_family_layer layer;

    for (size_t i = 0; i < COUNT(cases); i++) {
        is_int(ask(family, cases[i].desc, &layer), GH_ERR_UNSUPPORTED,
               "refusal %zu is a layer that it does not know", i);
        is_str(err.text, cases[i].says, "refusal %zu has its own sentence", i);
    }
}

int main(void)
{
    const char *builddir = getenv("builddir");
    char file[4096];
    void *object;

    test_what_it_is_cut_into();
    test_it_replays();
    snprintf(file, sizeof(file), "%s/plugins/.libs/stack.so",
             builddir != NULL ? builddir : ".");
    object = dlopen(file, RTLD_NOW);
    if (ok(object != NULL, "stack.so is built")) {
        const gh_family *family = dlsym(object, GH_FAMILY_SYMBOL);

        test_what_it_has(family);
        test_what_it_has_not(family);
    } else {
        diag("%s", dlerror());
    }
    return done_testing();
}
