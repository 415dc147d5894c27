/*
 * models.c - see models.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plugin/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_KINDS 6
#define MANY 10000u

static const char *const kind_titles[N_KINDS] = {
    "every feature of dense layers",    "every feature of moe layers",
    "every feature of mamba layers",    "every feature of attn_only layers",
    "every feature of mlp_only layers", "every feature of moe_only layers",
};

static void *get(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);

    if (memory == NULL) {
        fprintf(stderr, "graphhooks-conform: no memory for models\n");
        exit(2);
    }
    return memory;
}

static void add(struct model *model, const gh_layer_desc *desc)
{
    const uint32_t n = model->given.n_layers;

    if ((n & (n - 1)) == 0) {
        model->descs =
            get(model->descs, (n == 0 ? 1 : 2 * (size_t)n) * sizeof(*desc));
    }
    model->descs[n] = *desc;
    model->descs[n].struct_size = sizeof(*desc);
    model->descs[n].name = "a layer";
    model->given.n_layers++;
}

static void finish(struct model *model, const char *name)
{
    const uint32_t n = model->given.n_layers;

    model->name = name;
    model->pointers = get(NULL, (n + 1) * sizeof(*model->pointers));
    for (uint32_t i = 0; i < n; i++) {
        model->pointers[i] = &model->descs[i];
    }
    model->given.struct_size = sizeof(model->given);
    model->given.layers = model->pointers;
}

static int has_experts(gh_layer_kind kind)
{
    return kind == GH_LAYER_MOE || kind == GH_LAYER_MOE_ONLY;
}

/* ---- every feature ------------------------------------------------------- */

static void add_modules(struct model *model, gh_layer_desc desc)
{
    for (uint32_t bit = 0; 1u << bit <= GH_MODULE_LAYER; bit++) {
        desc.recompute = 1u << bit;
        add(model, &desc);
        desc.offload = 1u << bit;
        add(model, &desc);
        desc.recompute = 0;
        add(model, &desc);
        desc.offload = 0;
    }
}

static void add_experts(struct model *model, gh_layer_desc desc)
{
    static const uint32_t capacities[] = { 0, GH_FEATURE_CAPACITY,
                                           GH_FEATURE_CAPACITY | GH_FEATURE_PAD,
                                           GH_FEATURE_SYNC_FREE,
                                           GH_FEATURE_FP8_PADDING };
    static const uint32_t shared[] = { 0, GH_FEATURE_SHARED_EXPERTS,
                                       GH_FEATURE_SHARED_EXPERTS |
                                           GH_FEATURE_SHARED_OVERLAP };
    const uint32_t features = desc.features;

    for (size_t i = 0; i < 5 * 3 * 3 * 2 * 2; i++) {
        desc.features = features | capacities[i % 5] | shared[i / 5 % 3];
        desc.dispatcher = (gh_dispatcher)(i / 15 % 3);
        desc.experts = i / 45 % 2 == 0 ? 8 : 1;
        desc.features |= i / 90 == 0 ? 0 : GH_FEATURE_ROUTER_JITTER;
        add(model, &desc);
    }
}

static void make_kind(struct model *model, gh_layer_kind kind,
                      const char *family)
{
    static const uint32_t dropout[] = { 0, GH_FEATURE_ATTN_DROPOUT,
                                        GH_FEATURE_HIDDEN_DROPOUT,
                                        GH_FEATURE_ATTN_DROPOUT |
                                            GH_FEATURE_HIDDEN_DROPOUT };

    for (size_t i = 0; i < 4; i++) {
        gh_layer_desc desc = { .kind = kind,
                               .family = family,
                               .features = dropout[i] };

        if (has_experts(kind)) {
            add_experts(model, desc);
            desc.experts = 8;
        }
        add(model, &desc);
        add_modules(model, desc);
        desc.features |= GH_FEATURE_EMBEDDING;
        add(model, &desc);
        desc.features |= GH_FEATURE_HEAD;
        add(model, &desc);
    }
    finish(model, kind_titles[kind]);
}

/* ---- stacks -------------------------------------------------------------- */

/* Layer i is of the pattern's i-th letter: D X M * - E, over and over.  In a
 * mixed one every third layer is another family's. */
static void make_stack(struct model *model, const char *pattern, uint32_t n,
                       int mixed, const char *family, const char *name)
{
    static const char letters[] = "DXM*-E";
    const size_t period = strlen(pattern);

    for (uint32_t i = 0; i < n; i++) {
        const char *at = strchr(letters, pattern[i % period]);
        gh_layer_desc desc = { .kind = (gh_layer_kind)(at - letters),
                               .chunk = i * 4 / n,
                               .family = family };

        if (mixed && i % 3 == 2) {
            desc.family = i % 2 == 0 ? NULL : "another";
        }
        desc.experts = has_experts(desc.kind) ? 8 : 0;
        add(model, &desc);
    }
    finish(model, name);
}

struct model *models_make(const char *family)
{
    struct model *models = calloc(N_KINDS + 5, sizeof(*models));
    struct model *at = models;

    if (models == NULL) {
        get(NULL, SIZE_MAX / 2);
        return NULL;
    }
    for (gh_layer_kind kind = 0; kind < N_KINDS; kind++) {
        make_kind(at++, kind, family);
    }
    make_stack(at++, "DDDXXXXX", 61, 0, family, "dense layers, then experts");
    make_stack(at++, "M*-MEM-", 52, 0, family, "a hybrid stack");
    make_stack(at++, "M*-E", 52, 1, family, "a stack of several families");
    make_stack(at++, "DXM*-E", MANY, 0, family, "10,000 layers");
    return models;
}

void model_free(struct model *model)
{
    free(model->descs);
    free(model->pointers);
}

void models_free(struct model *models)
{
    for (struct model *m = models; m->given.n_layers != 0; m++) {
        model_free(m);
    }
    free(models);
}

void models_make_short(const char *family, struct model pair[2])
{
    const size_t end = GH_SIZE_THROUGH(gh_layer_desc, name);

    for (int i = 0; i < 2; i++) {
        memset(&pair[i], 0, sizeof(pair[i]));
        for (gh_layer_kind kind = 0; kind < N_KINDS; kind++) {
            const gh_layer_desc desc = { .kind = kind, .family = family };

            add(&pair[i], &desc);
        }
        for (uint32_t k = 0; k < N_KINDS; k++) {
            pair[i].descs[k].struct_size = (uint32_t)end;
            memset((char *)&pair[i].descs[k] + end, i == 0 ? 0 : 0xFF,
                   sizeof(gh_layer_desc) - end);
        }
        finish(&pair[i], "layers as a host of 0.1 describes them");
    }
}

void models_make_unknown(const char *family, struct model *model)
{
    memset(model, 0, sizeof(*model));
    for (uint32_t i = 0; i < 3; i++) {
        const gh_layer_desc desc = { .kind = 1000 + i, .family = family };

        add(model, &desc);
    }
    finish(model, "kinds of layers that nobody knows");
}
