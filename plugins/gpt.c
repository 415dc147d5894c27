/*
 * gpt.c - transformers: attention followed by an MLP or by experts, or one of
 * these alone, as hybrid stacks have them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plugins/parts.h"

static gh_status describe(void *ctx, uint32_t i, gh_family_layer *layer,
                          gh_error *err)
{
    const gh_layer_desc *desc = desc_of(ctx, i);

    if (add_transformer(layer, desc)) {
        return GH_OK;
    }
    return decline(err, desc->kind == GH_LAYER_MAMBA
                            ? "gpt knows no Mamba layers: name mamba for it"
                            : "gpt does not know its kind: name another "
                              "family, or none");
}

GH_FAMILY_DEFINE = {
    .struct_size = sizeof(gh_family),
    .name = "gpt",
    .open = open_model,
    .close = close_model,
    .layer = describe,
    .about = "transformer layers: attention, MLP, mixture of experts",
};
