/*
 * model.h - the layers of a model, as the plan reads them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_MODEL_H
#define GH_PLAN_MODEL_H

#include <graphhooks/model.h>

struct gh_traits;

struct gh_layer {
    gh_layer_kind kind;
    uint32_t chunk;
    uint32_t features, recompute, offload;
    uint32_t experts;
    gh_dispatcher dispatcher;
    gh_backend backend;
    char *name;
    char *family; /* NULL: none.  In a plan, traits name it */
    /* What the family says of the layer.  NULL in a model, and in a layer
     * without a family, which is as its kind says. */
    const struct gh_traits *traits;
};

/* check.c: the GH_MODULE_* that a layer of such a kind has. */
uint32_t gh_layer_modules(gh_layer_kind kind, uint32_t features);

struct gh_model {
    struct gh_layer *layers;
    uint32_t n_layers;
    uint32_t capacity;
    gh_model_desc desc; /* of all layers; zero: nothing is said */
};

#endif
