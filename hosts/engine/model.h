/*
 * model.h - the GPT: its sizes, and where every weight lies.
 *
 * All weights are one array, and so are their gradients and the optimizer's
 * moments.  The matrices of all layers come first, then the vectors, so that
 * weight decay is "the first n_decay"; those of one part lie together, so
 * that a part updates two ranges.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "device.h"

#include <stdint.h>

enum {
    VOCAB = 256,
    WIDEN = 4
}; /* bytes; the MLP's widening */

struct config {
    int layers, hidden, heads, seq, batch;
    uint64_t seed;
};

static inline int config_rows(const struct config *config)
{
    return config->batch * config->seq;
}

/* A run of weights: elements [first, first + count). */
struct range {
    size_t first, count;
};

/* Offsets into the arrays. */
struct attn_weights {
    size_t qkv_w, out_w; /* hidden x 3 hidden, hidden x hidden */
    size_t norm_g, norm_b, qkv_b, out_b; /* vectors */
    struct range matrices, vectors;
};

struct mlp_weights {
    size_t up_w, down_w; /* hidden x 4 hidden, and back */
    size_t norm_g, norm_b, up_b, down_b;
    struct range matrices, vectors;
};

struct model {
    struct config config;
    size_t n, n_decay;
    size_t token_w, position_w, head_w, norm_g, norm_b;
    struct attn_weights *attn; /* one a layer */
    struct mlp_weights *mlp;

    struct device *dev;
    float *w, *g, *m, *v; /* device, n each */
    struct optimizer_state *state;
};

/* Lays the weights out; no device yet.  0, or -1 when memory ran out. */
int model_init(struct model *model, const struct config *config);

/* Takes device memory and fills it from the seed.  0, or -1: dev->error. */
int model_upload(struct model *model, struct device *dev);

void model_free(struct model *model);

/* Writes the first values of all weights: the same for the same seed. */
void model_first_weights(const struct model *model, float *w);

/* FNV-1a over the bytes of all weights.  0, or -1. */
int model_hash(struct model *model, uint64_t *hash_p);

#endif
