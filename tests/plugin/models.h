/*
 * models.h - the models that a family is asked about.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PLUGIN_MODELS_H
#define PLUGIN_MODELS_H

#include <graphhooks/family.h>

struct model {
    const char *name; /* "every feature of moe layers" */
    gh_family_model given;
    gh_layer_desc *descs;
    const gh_layer_desc **pointers;
};

/* `family` is what the layers name; the last model ends the list by n_layers
 * 0.  Ends the program when there is no memory. */
struct model *models_make(const char *family);
void models_free(struct model *models);

/* Two of layers as a host of 0.1 describes them, the same but for the bytes
 * behind what their struct_size grants. */
void models_make_short(const char *family, struct model pair[2]);
/* One whose layers are of kinds that no release has. */
void models_make_unknown(const char *family, struct model *model);
void model_free(struct model *model);

#endif
