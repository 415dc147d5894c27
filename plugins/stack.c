/*
 * stack.c - layers that a host has as plain modules, as PyTorch does.
 *
 * Such a layer is called as a whole, or by its submodules attn and mlp.  Only
 * the framework knows what is inside of them: dropout draws from the
 * framework's generators, and checkpointing and offloading are the framework's
 * hooks.  So the plan must not count on any of these, and a description that
 * does is refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plugins/parts.h"

/* A field of the layer.  A layer of a release before 0.2 ends earlier; fields
 * that it does not have are 0. */
#define FIELD(desc, field) \
    (GH_HAS(desc, gh_layer_desc, field) ? (desc)->field : 0)

static const char *kind_problem(gh_layer_kind kind)
{
    switch (kind) {
    case GH_LAYER_DENSE:
    case GH_LAYER_ATTN_ONLY:
    case GH_LAYER_MLP_ONLY:
        return NULL;
    case GH_LAYER_MOE:
    case GH_LAYER_MOE_ONLY:
        return "its kind has experts, and a plain stack has none: name gpt "
               "or mla for it";
    case GH_LAYER_MAMBA:
        return "its kind is mamba, and a plain stack has attn and mlp alone: "
               "name mamba for it";
    default:
        return "stack does not know its kind: make it dense, attn_only or "
               "mlp_only, or name another family";
    }
}

static const char *problem_of(const gh_layer_desc *desc)
{
    const uint32_t dropout =
        GH_FEATURE_ATTN_DROPOUT | GH_FEATURE_HIDDEN_DROPOUT;
    const char *problem = kind_problem(desc->kind);

    if (problem != NULL) {
        return problem;
    }
    if (FIELD(desc, experts) != 0) {
        return "experts is set, and a plain stack has none: leave it 0, or "
               "name gpt or mla for it";
    }
    if (FIELD(desc, dispatcher) != GH_DISPATCHER_ALLTOALL) {
        return "dispatcher is set, and a plain stack has no experts to send "
               "tokens to: leave it 0";
    }
    if ((features_of(desc) & ~dropout) != 0) {
        return "features: a plain stack knows attn_dropout and "
               "hidden_dropout: leave the others out, or name gpt for it";
    }
    if (FIELD(desc, recompute) != 0) {
        return "recompute is set, and a plain stack is checkpointed by its "
               "framework, not by the plan: leave it out";
    }
    if (FIELD(desc, offload) != 0) {
        return "offload is set, and the plan sees no modules inside of a "
               "plain stack: leave it out, or name gpt for it";
    }
    return NULL;
}

static gh_status describe(void *ctx, uint32_t i, gh_family_layer *layer,
                          gh_error *err)
{
    const gh_layer_desc *desc = desc_of(ctx, i);
    const char *problem = problem_of(desc);

    if (problem != NULL) {
        return decline(err, problem);
    }
    add_transformer(layer, desc);
    return GH_OK;
}

GH_FAMILY_DEFINE = {
    .struct_size = sizeof(gh_family),
    .name = "stack",
    .open = open_model,
    .close = close_model,
    .layer = describe,
    .about = "plain modules, as of PyTorch: called whole, or as attn and mlp",
};
