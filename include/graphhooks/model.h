/*
 * graphhooks/model.h - what the host's model looks like, layer by layer.
 *
 * A model is a list of layer descriptions.  It is made once, read by
 * gh_session_open(), and may be destroyed right after: a session copies what
 * it needs.  A model belongs to one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_MODEL_H
#define GRAPHHOOKS_MODEL_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

typedef struct gh_model gh_model;

/* The smallest pieces of a layer that a graph or a scope can cover, in the
 * order in which a layer runs them.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_part;
enum {
    GH_PART_ATTN = 0, /* norm, attention, its residual add */
    GH_PART_MLP = 1,  /* norm, dense MLP, its residual add */
    /* since 0.2 */
    GH_PART_MOE_ROUTER = 2,     /* norm, router, and the shared experts unless
                                   they overlap the dispatch */
    GH_PART_MOE_PREPROCESS = 3, /* counts and permutation for the dispatch */
    GH_PART_MOE_DISPATCH = 4,   /* tokens to their experts' ranks */
    GH_PART_MOE_EXPERTS = 5,    /* the experts' MLPs */
    GH_PART_MOE_COMBINE = 6,    /* tokens back to their own ranks */
    GH_PART_MOE_POST = 7,       /* weighted sum, shared experts, residual */
    GH_PART_MAMBA = 8,          /* norm, convolution, scan, residual add */
    /* since 1.0: of layers with GH_FEATURE_EMBEDDING or GH_FEATURE_HEAD */
    GH_PART_EMBEDDING = 9, /* tokens to hidden states, before the layer */
    GH_PART_HEAD = 10      /* last norm, logits and loss, behind the layer */
};
#define GH_PART_COUNT 11

/* What a layer is made of.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_layer_kind;
enum {
    GH_LAYER_DENSE = 0, /* attn, then mlp */
    /* since 0.2 */
    GH_LAYER_MOE = 1,       /* attn, then the parts of a mixture of experts */
    GH_LAYER_MAMBA = 2,     /* mamba */
    GH_LAYER_ATTN_ONLY = 3, /* in a hybrid stack: attn alone */
    GH_LAYER_MLP_ONLY = 4,  /* in a hybrid stack: mlp alone */
    GH_LAYER_MOE_ONLY = 5   /* in a hybrid stack: the parts of a mixture of
                               experts alone */
};

/* How tokens reach their experts.  Values are frozen.  Since 0.2. */
typedef uint32_t gh_dispatcher;
enum {
    GH_DISPATCHER_ALLTOALL = 0,
    GH_DISPATCHER_ALLGATHER = 1,
    GH_DISPATCHER_FLEX = 2
};

/* gh_layer_desc.features.  Since 0.2. */
enum {
    GH_FEATURE_CAPACITY = 1u << 0,    /* experts drop tokens over a capacity */
    GH_FEATURE_PAD = 1u << 1,         /* with the one above: experts are padded
                                         up to their capacity */
    GH_FEATURE_SYNC_FREE = 1u << 2,   /* the dispatcher never waits for the
                                         device, and its shapes are static */
    GH_FEATURE_FP8_PADDING = 1u << 3, /* the router pads counts for fp8 */
    GH_FEATURE_SHARED_EXPERTS = 1u << 4,
    GH_FEATURE_SHARED_OVERLAP = 1u << 5, /* shared experts run concurrently with
                                            the dispatch */
    GH_FEATURE_ATTN_DROPOUT = 1u << 6,
    GH_FEATURE_HIDDEN_DROPOUT = 1u << 7,
    GH_FEATURE_ROUTER_JITTER = 1u << 8, /* random noise on the router's input */
    /* since 0.3 */
    GH_FEATURE_HOST_ROUTER = 1u << 9, /* the router waits on the host for the
                                         device, as a Sinkhorn router does
                                         until it converges */
    GH_FEATURE_LATENT = 1u << 10,     /* the experts work on a projection of
                                         the hidden states, computed before
                                         the dispatch */
    GH_FEATURE_PACKED = 1u << 11,     /* a microbatch holds several sequences,
                                         and their number changes */
    GH_FEATURE_PACKED_PAD = 1u << 12, /* with the one above: the numbers of
                                         sequences and of tokens are padded to
                                         constants */
    GH_FEATURE_MTP = 1u << 13,        /* the first layer of a depth of
                                         multi-token prediction, whose input
                                         no part of a layer computes; of the
                                         chunks that follow each begins with
                                         one */
    /* since 1.0 */
    GH_FEATURE_EMBEDDING = 1u << 14, /* of the first layer: the host runs the
                                        embedding where the plan has it,
                                        before the layer */
    GH_FEATURE_HEAD = 1u << 15       /* of the last layer, or of the last one
                                        before a depth of multi-token
                                        prediction: the host runs the head and
                                        the loss where the plan has them,
                                        behind the layer */
};

/* The library that exchanges the tokens of a flex dispatcher.  Values are
 * frozen.  Since 0.3. */
typedef uint32_t gh_backend;
enum {
    GH_BACKEND_NONE = 0, /* not given */
    GH_BACKEND_DEEPEP = 1,
    GH_BACKEND_HYBRIDEP = 2,
    GH_BACKEND_NCCLEP = 3
};

/* gh_layer_desc.recompute and .offload: only modules that the layer has.
 * Since 0.2. */
enum {
    GH_MODULE_ATTN_NORM = 1u << 0,
    GH_MODULE_QKV_LINEAR = 1u << 1,
    GH_MODULE_CORE_ATTN = 1u << 2,
    GH_MODULE_ATTN_PROJ = 1u << 3,
    GH_MODULE_MLP_NORM = 1u << 4,
    GH_MODULE_MLP = 1u << 5,
    GH_MODULE_MOE = 1u << 6,
    GH_MODULE_SHARED_EXPERTS = 1u << 7,
    GH_MODULE_EXPERT_FC1 = 1u << 8,
    GH_MODULE_MOE_ACT = 1u << 9,
    GH_MODULE_LAYER = 1u << 10 /* the whole layer */
};

/**
 * One layer.  Zero the struct, then set struct_size.  Since 0.1.
 */
typedef struct gh_layer_desc {
    uint32_t struct_size;
    gh_layer_kind kind;
    uint32_t chunk;    /* pipeline model chunk on this rank: that of the layer
                          before, or one more; 0 for the first layer */
    uint32_t reserved; /* must be 0 */
    const char *name;  /* for logs and the plan; NULL: "layer N"; copied */
    /* since 0.2 */
    uint32_t features;        /* GH_FEATURE_* */
    uint32_t recompute;       /* GH_MODULE_*: their forward runs again in the
                                 backward */
    uint32_t offload;         /* GH_MODULE_*: their activations are offloaded
                                 to host memory */
    uint32_t experts;         /* on all ranks together; required for a kind
                                 that has experts */
    gh_dispatcher dispatcher; /* read only for a kind that has experts */
    uint32_t reserved_end;    /* must be 0 */
    const char *family;       /* the plugin that describes the layer: "gpt",
                                 "mla", "mamba", "stack" or one of the user's;
                                 NULL: none, `kind` alone describes it.
                                 Copied */
    /* since 0.3 */
    gh_backend backend;     /* only with GH_DISPATCHER_FLEX */
    uint32_t reserved_tail; /* must be 0 */
} gh_layer_desc;

/* gh_model_desc.flags.  Since 0.3. */
enum {
    GH_MODEL_WHOLE = 1u << 0, /* the layers are those of all pipeline stages,
                                 not of this rank alone */
    /* since 1.0 */
    GH_MODEL_STAGE = 1u << 1 /* they are those of one stage of several: a scope
                                that captures nothing of them leaves the stage
                                eager, as other stages have other layers.  Not
                                with GH_MODEL_WHOLE */
};

/**
 * Properties of the whole model.  Zero the struct, then set struct_size.
 * Since 0.3.
 */
typedef struct gh_model_desc {
    uint32_t struct_size;
    uint32_t flags;   /* GH_MODEL_* */
    uint32_t ep_size; /* ranks that share the experts; 0: not given */
    uint32_t cp_size; /* ranks that share a sequence; 0: not given */
} gh_model_desc;

/**
 * Make an empty model.
 *
 * @param[out] model_p  the model, until gh_model_destroy()
 *
 * @return GH_OK; GH_ERR_INVALID for NULL; GH_ERR_NO_MEMORY.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_model_create(gh_model **model_p, gh_error *err);

/**
 * Append a layer.
 *
 * @param desc  read during the call only
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED when the
 *         description breaks a rule, after which the model is as it was;
 *         GH_ERR_NO_MEMORY.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_model_add_layer(gh_model *model, const gh_layer_desc *desc,
                                    gh_error *err);

/**
 * Set the properties of the whole model, before or after its layers are added.
 * A second call replaces the first.
 *
 * @param desc  read during the call only
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED when the
 *         description breaks a rule, after which the model is as it was.
 * Blocks: never.  Since: 0.3.
 */
GH_API gh_status gh_model_describe(gh_model *model, const gh_model_desc *desc,
                                   gh_error *err);

/**
 * Free a model; NULL is allowed.  Sessions that were opened with it stay valid.
 * Blocks: never.  Since: 0.1.
 */
GH_API void gh_model_destroy(gh_model *model);

GH_END_DECLS

#endif
