/*
 * kinds.c - the parts of every kind of layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/kinds.h"

#include <graphhooks/session.h>

#define MOE_PARTS \
    GH_PART_MOE_ROUTER, GH_PART_MOE_PREPROCESS, GH_PART_MOE_DISPATCH, \
        GH_PART_MOE_EXPERTS, GH_PART_MOE_COMBINE, GH_PART_MOE_POST

#define ENDS(...) \
    { \
        GH_PART_EMBEDDING, __VA_ARGS__, GH_PART_HEAD \
    }

const struct gh_kind gh_kinds[GH_KIND_COUNT] = {
    [GH_LAYER_DENSE] = { "dense", 2, ENDS(GH_PART_ATTN, GH_PART_MLP) },
    [GH_LAYER_MOE] = { "moe", 7, ENDS(GH_PART_ATTN, MOE_PARTS) },
    [GH_LAYER_MAMBA] = { "mamba", 1, ENDS(GH_PART_MAMBA) },
    [GH_LAYER_ATTN_ONLY] = { "attn_only", 1, ENDS(GH_PART_ATTN) },
    [GH_LAYER_MLP_ONLY] = { "mlp_only", 1, ENDS(GH_PART_MLP) },
    [GH_LAYER_MOE_ONLY] = { "moe_only", 6, ENDS(MOE_PARTS) },
};

const char *gh_part_name(gh_part part)
{
    static const char *const names[GH_PART_COUNT] = {
        [GH_PART_ATTN] = "attn",
        [GH_PART_MLP] = "mlp",
        [GH_PART_MOE_ROUTER] = "moe_router",
        [GH_PART_MOE_PREPROCESS] = "moe_preprocess",
        [GH_PART_MOE_DISPATCH] = "moe_dispatch",
        [GH_PART_MOE_EXPERTS] = "moe_experts",
        [GH_PART_MOE_COMBINE] = "moe_combine",
        [GH_PART_MOE_POST] = "moe_post",
        [GH_PART_MAMBA] = "mamba",
        [GH_PART_EMBEDDING] = "embedding",
        [GH_PART_HEAD] = "head",
    };

    return part < GH_PART_COUNT ? names[part] : "?";
}

bool gh_kind_has(gh_layer_kind kind, gh_part part)
{
    for (uint32_t i = 1; i <= gh_kinds[kind].n_parts; i++) {
        if (gh_kinds[kind].parts[i] == part) {
            return true;
        }
    }
    return false;
}

const char *const gh_direction_names[] = { "forward", "backward", "wgrad",
                                           NULL };

const char *const gh_kind_names[] = {
    "dense", "moe", "mamba", "attn_only", "mlp_only", "moe_only", NULL,
};

const char *const gh_dispatcher_names[] = {
    "alltoall",
    "allgather",
    "flex",
    NULL,
};

const char *const gh_feature_names[] = {
    "capacity",
    "pad",
    "sync_free",
    "fp8_padding",
    "shared_experts",
    "shared_overlap",
    "attn_dropout",
    "hidden_dropout",
    "router_jitter",
    "host_router",
    "latent",
    "packed",
    "packed_pad",
    "mtp",
    "embedding",
    "head",
    NULL,
};

const char *const gh_backend_names[] = {
    "none", "deepep", "hybridep", "ncclep", NULL,
};

const char *const gh_module_names[] = {
#define GH_MODULE_ROW(id, word, part, is_group) word,
#include "plan/modules.def"
#undef GH_MODULE_ROW
    NULL
};

uint32_t gh_modules_in(enum gh_module_part wanted)
{
    uint32_t modules = 0;

#define GH_MODULE_ROW(id, word, part, is_group) \
    modules |= GH_MODULE_PART_##part == wanted ? GH_MODULE_##id : 0;
#include "plan/modules.def"
#undef GH_MODULE_ROW
    return modules;
}

const char *gh_reason_name(gh_reason reason)
{
    static const char *const names[] = {
        [GH_REASON_NONE] = "none",
        [GH_REASON_DISABLED] = "disabled",
        [GH_REASON_PLAN] = "plan",
        [GH_REASON_WARMUP] = "warmup",
        [GH_REASON_BUSY] = "busy",
        [GH_REASON_CAPTURE] = "capture",
        [GH_REASON_DEVICE] = "device",
        [GH_REASON_INPUT] = "input",
        [GH_REASON_FROZEN] = "frozen",
        [GH_REASON_CHECK] = "check",
        [GH_REASON_MISMATCH] = "mismatch",
        [GH_REASON_HOST_CAPTURE] = "host_capture",
        [GH_REASON_FORWARD_ONLY] = "forward_only",
        [GH_REASON_EMPTY] = "empty",
        [GH_REASON_PAUSED] = "paused",
        [GH_REASON_BANKS] = "banks",
        [GH_REASON_PACKED] = "packed",
        [GH_REASON_UNBOUND] = "unbound",
        [GH_REASON_RANKS] = "ranks",
    };

    _Static_assert(sizeof(names) / sizeof(names[0]) == GH_REASONS,
                   "GH_REASONS counts the last reason");
    return reason < GH_REASONS ? names[reason] : "?";
}
