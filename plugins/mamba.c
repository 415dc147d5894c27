/*
 * mamba.c - layers of a selective state space.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plugins/parts.h"

static gh_status describe(void *ctx, uint32_t i, gh_family_layer *layer,
                          gh_error *err)
{
    if (desc_of(ctx, i)->kind != GH_LAYER_MAMBA) {
        return decline(err, "mamba knows Mamba layers alone: name gpt or mla "
                            "for it");
    }
    add_embedding(layer, desc_of(ctx, i));
    add_part(layer, GH_PART_MAMBA);
    add_head(layer, desc_of(ctx, i));
    add_node(layer, GH_PART_MAMBA, GH_PART_MAMBA, GH_LANE_COMPUTE);
    widen_nodes(layer);
    note(layer, "the convolution's and the scan's state begin at zero in "
                "every microbatch, so a graph keeps none");
    return GH_OK;
}

GH_FAMILY_DEFINE = {
    .struct_size = sizeof(gh_family),
    .name = "mamba",
    .open = open_model,
    .close = close_model,
    .layer = describe,
    .about = "Mamba layers: convolution and selective scan",
};
