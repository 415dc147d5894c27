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

/* The smallest pieces that a scope can name, in the order a layer runs them.
 * Values are frozen. */
typedef uint32_t gh_part;
enum {
    GH_PART_ATTN = 0, /* norm, attention, its residual add */
    GH_PART_MLP = 1   /* norm, dense MLP, its residual add */
};

/* What a layer is made of. */
typedef uint32_t gh_layer_kind;
enum {
    GH_LAYER_DENSE = 0 /* attn, then mlp */
};

/**
 * One layer.  Zero the struct, then set struct_size.
 */
typedef struct gh_layer_desc {
    uint32_t struct_size;
    gh_layer_kind kind;
    uint32_t chunk;    /* pipeline model chunk on this rank, from 0; chunks
                          come in order and none is left out */
    uint32_t reserved; /* must be 0 */
    const char *name;  /* for logs and the plan; NULL: "layer N"; copied */
} gh_layer_desc;

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
 * Free a model; NULL is allowed.  Sessions opened from it live on.
 * Blocks: never.  Since: 0.1.
 */
GH_API void gh_model_destroy(gh_model *model);

GH_END_DECLS

#endif
