/*
 * model.c - gh_model: the host's layers, in the order they were added.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/model.h"

#include "base/error.h"
#include "base/size.h"
#include "plan/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gh_status gh_model_create(gh_model **model_p, gh_error *err)
{
    gh_model *model;

    if (model_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_model_create: model_p is NULL");
    }
    model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a model");
    }
    *model_p = model;
    return GH_OK;
}

static gh_status check_chunk(const gh_model *model, const gh_layer_desc *desc,
                             gh_error *err)
{
    uint32_t last = 0;

    if (model->n_layers > 0) {
        last = model->layers[model->n_layers - 1].chunk;
    }
    if (desc->chunk == last ||
        (model->n_layers > 0 && desc->chunk == last + 1)) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "layer %u: gh_layer_desc.chunk is %u after chunk %u: add "
                   "layers chunk by chunk, from 0, leaving none out",
                   model->n_layers, desc->chunk, last);
}

static gh_status check_layer(const gh_model *model, const gh_layer_desc *desc,
                             gh_error *err)
{
    char where[48];
    gh_status status;

    snprintf(where, sizeof(where), "layer %u: gh_layer_desc.", model->n_layers);
    status = gh_layer_check(where, desc, err);
    return status != GH_OK ? status : check_chunk(model, desc, err);
}

static gh_status make_room(gh_model *model, gh_error *err)
{
    uint32_t capacity = model->capacity == 0 ? 16 : 2 * model->capacity;
    struct gh_layer *layers;

    if (model->n_layers < model->capacity) {
        return GH_OK;
    }
    layers = realloc(model->layers, capacity * sizeof(*layers));
    if (layers == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u layers",
                       capacity);
    }
    model->layers = layers;
    model->capacity = capacity;
    return GH_OK;
}

static char *layer_name(const char *given, uint32_t i)
{
    char text[32];

    if (given != NULL) {
        return strdup(given);
    }
    snprintf(text, sizeof(text), "layer %u", i);
    return strdup(text);
}

gh_status gh_model_add_layer(gh_model *model, const gh_layer_desc *desc,
                             gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_layer_desc, name);
    char *name, *family = NULL;
    gh_layer_desc ours;
    gh_status status;

    if (model == NULL || desc == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_model_add_layer: %s is NULL",
                       model == NULL ? "model" : "desc");
    }
    status = gh_check_size("gh_layer_desc", desc, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(desc, &ours, sizeof(ours));

    status = check_layer(model, &ours, err);
    if (status != GH_OK) {
        return status;
    }
    status = make_room(model, err);
    if (status != GH_OK) {
        return status;
    }
    name = layer_name(ours.name, model->n_layers);
    if (name != NULL && ours.family != NULL) {
        family = strdup(ours.family);
    }
    if (name == NULL || (family == NULL && ours.family != NULL)) {
        free(name);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a layer's name");
    }

    model->layers[model->n_layers++] = (struct gh_layer){
        .kind = ours.kind,
        .chunk = ours.chunk,
        .features = ours.features,
        .recompute = ours.recompute,
        .offload = ours.offload,
        .experts = ours.experts,
        .dispatcher = ours.dispatcher,
        .backend = ours.backend,
        .name = name,
        .family = family,
    };
    return GH_OK;
}

gh_status gh_model_describe(gh_model *model, const gh_model_desc *desc,
                            gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_model_desc, cp_size);
    const uint32_t known = GH_MODEL_WHOLE | GH_MODEL_STAGE;
    gh_model_desc ours;
    gh_status status;

    if (model == NULL || desc == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_model_describe: %s is NULL",
                       model == NULL ? "model" : "desc");
    }
    status = gh_check_size("gh_model_desc", desc, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(desc, &ours, sizeof(ours));
    if ((ours.flags & ~known) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_model_desc.flags has unknown bits 0x%x",
                       ours.flags & ~known);
    }
    if (ours.flags == known) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_model_desc.flags: the layers are of the whole model "
                       "or of one stage: leave out whole or stage");
    }
    model->desc = ours;
    return GH_OK;
}

void gh_model_destroy(gh_model *model)
{
    if (model == NULL) {
        return;
    }
    for (uint32_t i = 0; i < model->n_layers; i++) {
        free(model->layers[i].name);
        free(model->layers[i].family);
    }
    free(model->layers);
    free(model);
}
