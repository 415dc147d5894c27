/*
 * A model takes a layer that may be, and refuses others with a sentence.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/kinds.h"
#include "plan/model.h"
#include "tap/tap.h"

#include <malloc.h>
#include <string.h>

static gh_error err;

static gh_status add(gh_model *model, uint32_t chunk, const char *name)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc),
                           .chunk = chunk,
                           .name = name };

    return gh_model_add_layer(model, &desc, &err);
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

static void test_a_layer_that_contradicts_itself_is_refused(void)
{
    const struct {
        gh_layer_desc desc;
        gh_status status;
        const char *word;
    } bad[] = {
        { { .kind = GH_LAYER_MOE }, GH_ERR_INVALID, "experts is 0" },
        { { .kind = GH_LAYER_DENSE, .experts = 4 },
          GH_ERR_INVALID,
          "has no experts" },
        { { .kind = GH_LAYER_MOE, .experts = 4, .features = GH_FEATURE_PAD },
          GH_ERR_INVALID,
          "layer 0: gh_layer_desc.features: pad pads up to a capacity: name "
          "capacity too" },
        { { .kind = GH_LAYER_MOE,
            .experts = 4,
            .features = GH_FEATURE_SHARED_OVERLAP },
          GH_ERR_INVALID,
          "name shared_experts too" },
        { { .features = GH_FEATURE_SYNC_FREE },
          GH_ERR_INVALID,
          "features: this dense layer has no sync_free; leave it out" },
        { { .kind = GH_LAYER_MAMBA, .features = GH_FEATURE_ATTN_DROPOUT },
          GH_ERR_INVALID,
          "features: this mamba layer has no attn_dropout" },
        { { .kind = GH_LAYER_MAMBA, .recompute = GH_MODULE_CORE_ATTN },
          GH_ERR_INVALID,
          "layer 0: gh_layer_desc.recompute: this mamba layer has no "
          "core_attn; leave it out" },
        { { .kind = GH_LAYER_ATTN_ONLY, .offload = GH_MODULE_MLP_NORM },
          GH_ERR_INVALID,
          "offload: this attn_only layer has no mlp_norm" },
        { { .offload = GH_MODULE_EXPERT_FC1 },
          GH_ERR_INVALID,
          "offload: this dense layer has no expert_fc1" },
        { { .kind = GH_LAYER_MOE,
            .experts = 4,
            .offload = GH_MODULE_SHARED_EXPERTS },
          GH_ERR_INVALID,
          "offload: this moe layer has no shared_experts" },
        { { .kind = GH_LAYER_MOE,
            .experts = 4,
            .dispatcher = GH_DISPATCHER_FLEX + 1 },
          GH_ERR_UNSUPPORTED,
          "dispatcher" },
        { { .features = 1u << 20 }, GH_ERR_INVALID, "features" },
        { { .recompute = 1u << 20 }, GH_ERR_INVALID, "recompute" },
        { { .offload = 1u << 20 }, GH_ERR_INVALID, "offload" },
        { { .reserved_end = 1 }, GH_ERR_INVALID, "reserved_end is" },
        { { .reserved_tail = 1 }, GH_ERR_INVALID, "reserved_tail is not 0" },
        { { .features = GH_FEATURE_PACKED_PAD },
          GH_ERR_INVALID,
          "packed_pad is of packed sequences: name packed too" },
        { { .features = GH_FEATURE_HOST_ROUTER },
          GH_ERR_INVALID,
          "this dense layer has no host_router" },
        { { .kind = GH_LAYER_MAMBA, .features = GH_FEATURE_LATENT },
          GH_ERR_INVALID,
          "this mamba layer has no latent" },
        { { .backend = GH_BACKEND_DEEPEP },
          GH_ERR_INVALID,
          "backend is of a flex dispatcher; leave it out" },
        { { .kind = GH_LAYER_MOE,
            .experts = 4,
            .backend = GH_BACKEND_HYBRIDEP },
          GH_ERR_INVALID,
          "set dispatcher to flex" },
        { { .kind = GH_LAYER_MOE,
            .experts = 4,
            .dispatcher = GH_DISPATCHER_FLEX,
            .backend = GH_BACKEND_NCCLEP + 1 },
          GH_ERR_UNSUPPORTED,
          "backend 4 is not known" },
    };
    gh_model *model;

    gh_model_create(&model, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gh_layer_desc desc = bad[i].desc;

        desc.struct_size = sizeof(desc);
        is_status(gh_model_add_layer(model, &desc, &err), bad[i].status, &err,
                  "layer %zu is refused", i);
        ok(strstr(err.text, bad[i].word) != NULL, "layer %zu: %s", i, err.text);
    }
    is_int(model->n_layers, 0, "and leaves nothing behind");
    gh_model_destroy(model);
}

/* What a layer has is accepted: only that is refused which it has not. */
static void test_a_layer_may_name_all_that_it_has(void)
{
    static const struct {
        gh_layer_kind kind;
        uint32_t n_features, n_modules;
    } own[] = {
        { GH_LAYER_DENSE, 7, 7 },    { GH_LAYER_MOE, 16, 9 },
        { GH_LAYER_MAMBA, 6, 1 },    { GH_LAYER_ATTN_ONLY, 7, 5 },
        { GH_LAYER_MLP_ONLY, 6, 3 }, { GH_LAYER_MOE_ONLY, 15, 5 },
    };
    gh_model *model;

    gh_model_create(&model, NULL);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        uint32_t n_features = 0, n_modules = 0;
        gh_layer_desc desc = { .struct_size = sizeof(desc),
                               .kind = own[i].kind };

        desc.experts = gh_kind_has(desc.kind, GH_PART_MOE_ROUTER) ? 4 : 0;
        for (uint32_t bit = 0; gh_feature_names[bit] != NULL; bit++) {
            desc.features = 1u << bit;
            if (desc.features == GH_FEATURE_PAD) {
                desc.features |= GH_FEATURE_CAPACITY;
            } else if (desc.features == GH_FEATURE_SHARED_OVERLAP) {
                desc.features |= GH_FEATURE_SHARED_EXPERTS;
            } else if (desc.features == GH_FEATURE_PACKED_PAD) {
                desc.features |= GH_FEATURE_PACKED;
            }
            n_features += gh_model_add_layer(model, &desc, NULL) == GH_OK;
        }
        desc.features = 0;
        for (uint32_t bit = 0; gh_module_names[bit] != NULL; bit++) {
            desc.recompute = desc.offload = 1u << bit;
            n_modules += gh_model_add_layer(model, &desc, NULL) == GH_OK;
        }
        is_int(n_features, own[i].n_features, "features that a %s layer has",
               gh_kind_names[own[i].kind]);
        is_int(n_modules, own[i].n_modules,
               "and modules, without shared "
               "experts");
    }
    gh_model_destroy(model);
}

static void test_what_holds_for_all_layers(void)
{
    gh_model_desc desc = { .struct_size = sizeof(desc),
                           .flags = GH_MODEL_WHOLE,
                           .ep_size = 8,
                           .cp_size = 2 };
    gh_model *model;

    gh_model_create(&model, NULL);
    is_status(gh_model_describe(NULL, &desc, &err), GH_ERR_INVALID, &err,
              "a description needs a model");
    is_status(gh_model_describe(model, NULL, &err), GH_ERR_INVALID, &err,
              "and a model a description");
    is_status(gh_model_describe(model, &desc, &err), GH_OK, &err,
              "a model may be described");
    desc.flags |= GH_MODEL_STAGE;
    is_status(gh_model_describe(model, &desc, &err), GH_ERR_INVALID, &err,
              "a whole model is no stage");
    desc.flags = 1u << 7;
    is_status(gh_model_describe(model, &desc, &err), GH_ERR_INVALID, &err,
              "an unknown flag is refused");
    desc.struct_size = 8;
    is_status(gh_model_describe(model, &desc, &err), GH_ERR_ABI, &err,
              "so is a size below 0.3's");
    ok(model->desc.flags == GH_MODEL_WHOLE && model->desc.ep_size == 8 &&
           model->desc.cp_size == 2,
       "and the model is as it was");
    gh_model_destroy(model);
}

static void make_and_destroy(int n)
{
    const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                 .name = "a layer with a name of its own",
                                 .family = "a_family_with_a_long_name" };

    for (int i = 0; i < n; i++) {
        gh_model *model;

        gh_model_create(&model, NULL);
        gh_model_add_layer(model, &desc, &err);
        gh_model_destroy(model);
    }
}

/* A sanitizer's own allocator says 0, and looks for what leaks by itself. */
static void test_a_model_leaves_nothing(void)
{
    enum { N = 1000 };
    size_t before;

    make_and_destroy(N);
    before = mallinfo2().uordblks;
    make_and_destroy(N);
    ok(mallinfo2().uordblks < before + N,
       "models that are destroyed leave no memory behind");
}

int main(void)
{
    test_what_holds_for_all_layers();
    test_a_bad_layer_is_refused();
    test_a_layer_that_contradicts_itself_is_refused();
    test_a_layer_may_name_all_that_it_has();
    test_a_model_leaves_nothing();
    return done_testing();
}
