/*
 * mla.c - transformers with latent attention.
 *
 * Query, key and value are made of compressed vectors, and only a part of each
 * head is rotated, with tables that are made once for all steps.  A graph
 * reads the tables at the address that it was recorded with, so the host must
 * keep them there: they are auxiliary tensors of the attention.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plugins/parts.h"

static void add_rotary(gh_family_layer *layer)
{
    static const char *const tables[] = { "rotary_cos", "rotary_sin" };

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        layer->tensors[layer->n_tensors++] = (gh_family_tensor){
            .name = tables[i],
            .parts = 1u << GH_PART_ATTN,
        };
    }
}

static gh_status describe(void *ctx, uint32_t i, gh_family_layer *layer,
                          gh_error *err)
{
    const gh_layer_desc *desc = desc_of(ctx, i);

    if (!add_transformer(layer, desc)) {
        return decline(err, desc->kind == GH_LAYER_MAMBA
                                ? "mla knows no Mamba layers: name mamba for it"
                                : "mla does not know its kind: name another "
                                  "family, or none");
    }
    if ((layer->capturable & 1u << GH_PART_ATTN) != 0) {
        add_rotary(layer);
    }
    return GH_OK;
}

GH_FAMILY_DEFINE = {
    .struct_size = sizeof(gh_family),
    .name = "mla",
    .open = open_model,
    .close = close_model,
    .layer = describe,
    .about = "transformer layers with latent attention and rotary tables",
};
