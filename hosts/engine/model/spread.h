/*
 * spread.h - attention over sequences that several ranks share.
 *
 * Each rank has its tokens' queries, keys and values.  Scores are made block by
 * block: a block is one rank's keys.  Blocks come to all ranks at once, by an
 * all-gather, or one after the other, around a ring; the gradients of keys and
 * values go back the same way.  The order of every sum is fixed by the ranks'
 * numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_SPREAD_H
#define ENGINE_SPREAD_H

#include "model/linear.h"

#include <math.h>

/* `pieces` of cols elements for each token, ld apart. */
struct strip {
    float *data;
    int pieces, cols, ld;
};

struct spread {
    struct view q;
    struct strip k, v;
    int head_k, head_v; /* columns of a head */
    float *probs;
    float scale;
};

/* Whether the sequences of this work are shared. */
static inline bool work_is_spread(const struct work *work)
{
    return config_cp(&work->model->config) > 1;
}

/* That of a layer whose rows are q, k, v. */
static inline struct spread attn_spread(const struct work *work,
                                        const struct attn_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int d = c / config->heads;

    return (struct spread){
        .q = view_heads(config, buffers->qkv, 3, 0),
        .k = { buffers->qkv + c, 1, c, 3 * c },
        .v = { buffers->qkv + 2 * c, 1, c, 3 * c },
        .head_k = d,
        .head_v = d,
        .probs = buffers->probs,
        .scale = 1.0f / sqrtf((float)d),
    };
}

/* Where this rank's tokens lie, and which of all ranks' keys they see: once for
 * each microbatch, before its first part. */
void spread_places(const struct work *work);

/* context = softmax(q k^T scale) v, of all ranks' keys and values. */
void spread_forward(const struct work *work, const struct spread *spread,
                    struct view context);

/* From the gradient of the context those of q, k and v. */
void spread_backward(const struct work *work, const struct spread *spread,
                     struct view d_context, struct view dq, struct strip dk,
                     struct strip dv);

/* All ranks' rows of `cols` columns, in the order of their sequence; and this
 * rank's of those. */
void spread_gather_rows(const struct work *work, const float *own, int cols,
                        float *all);
void spread_take_rows(const struct work *work, const float *all, int cols,
                      float *own);

#endif
