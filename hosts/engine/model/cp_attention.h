/*
 * cp_attention.h - attention over sequences that several ranks share.
 *
 * Each rank has the queries, keys and values of its own tokens.  Scores are
 * made block by block; a block is the keys of one rank.  All blocks come at
 * once, by an all-gather, or one after the other, around a ring.  The
 * gradients of keys and values go back the same way.  The ranks' numbers fix
 * the order of every sum.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CP_ATTENTION_H
#define ENGINE_CP_ATTENTION_H

#include "model/linear.h"

#include <math.h>

/* `pieces` pieces of `cols` elements for each token; pieces are `ld` apart. */
struct strip {
    float *data;
    int pieces, cols, ld;
};

struct cp_attention {
    struct view q;
    struct strip k, v;
    int head_k, head_v; /* columns of a head */
    float *probs;
    float scale;
};

/* Whether the sequences of this work are shared. */
static inline bool work_has_cp(const struct work *work)
{
    return config_cp(&work->model->config) > 1;
}

/* The attention of a layer whose rows are q, k, v. */
static inline struct cp_attention attn_cp(const struct work *work,
                                          const struct attn_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int d = c / config->heads;

    return (struct cp_attention){
        .q = view_heads(config, buffers->qkv, 3, 0),
        .k = { buffers->qkv + c, 1, c, 3 * c },
        .v = { buffers->qkv + 2 * c, 1, c, 3 * c },
        .head_k = d,
        .head_v = d,
        .probs = buffers->probs,
        .scale = 1.0f / sqrtf((float)d),
    };
}

/* Computes where this rank's tokens lie, and which keys of all ranks they see.
 * Called once for each microbatch, before its first part. */
void cp_attention_order(const struct work *work);

/* context = softmax(q k^T scale) v, over the keys and values of all ranks. */
void cp_attention_forward(const struct work *work,
                          const struct cp_attention *cp,
                          struct view context);

/* Makes the gradients of q, k and v from that of the context. */
void cp_attention_backward(const struct work *work,
                           const struct cp_attention *cp,
                           struct view d_context, struct view dq,
                           struct strip dk, struct strip dv);

/* Gathers all ranks' rows of `cols` columns, in the order of their sequence;
 * and takes this rank's rows out of those. */
void cp_gather_rows(const struct work *work, const float *own, int cols,
                    float *all);
void cp_take_rows(const struct work *work, const float *all, int cols,
                  float *own);

#endif
