/*
 * model.h - a model: its sizes, its parts, and where every weight lies.
 *
 * A model is a list of layers, a layer a list of parts, and parts are what
 * the library's scopes name.  layers.c has the table.
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

enum model_kind {
    MODEL_GPT,
    MODEL_MOE,
    MODEL_COUNT
};

/* The values of gh_part. */
enum part_kind {
    PART_ATTN = 0,
    PART_MLP = 1,
    PART_MOE_ROUTER = 2,
    PART_MOE_PREPROCESS = 3,
    PART_MOE_DISPATCH = 4,
    PART_MOE_EXPERTS = 5,
    PART_MOE_COMBINE = 6,
    PART_MOE_POST = 7
};

/* The values of gh_layer_kind. */
enum layer_kind {
    LAYER_DENSE = 0,
    LAYER_MOE = 1
};

struct config {
    int layers, hidden, heads, seq, batch;
    uint64_t seed;
    enum model_kind model;
    int experts, top_k;
    bool drop_and_pad;  /* every expert takes as many tokens */
    bool dropless_host; /* the host reads how many, as between ranks */
    bool shared_expert;
};

static inline int config_rows(const struct config *config)
{
    return config->batch * config->seq;
}

/* Rows that one expert has room for when tokens are dropped: a quarter more
 * than its share. */
static inline int config_capacity(const struct config *config)
{
    const int shares = 4 * config->experts;

    return (5 * config_rows(config) * config->top_k + shares - 1) / shares;
}

/* Rows of all experts together: a dropless layer places every choice. */
static inline int config_slots(const struct config *config)
{
    return config->drop_and_pad ? config->experts * config_capacity(config)
                                : config_rows(config) * config->top_k;
}

/* Inner width of an expert. */
static inline int config_expert(const struct config *config)
{
    return 2 * config->hidden;
}

/* A run of weights: elements [first, first + count). */
struct range {
    size_t first, count;
};

/* Offsets into the arrays. */
struct attn_weights {
    size_t qkv_w, out_w; /* hidden x 3 hidden, hidden x hidden */
    size_t norm_g, norm_b, qkv_b, out_b; /* vectors */
};

struct mlp_weights {
    size_t up_w, down_w; /* hidden x 4 hidden, and back */
    size_t norm_g, norm_b, up_b, down_b;
};

struct moe_weights {
    size_t router_w;               /* hidden x experts */
    size_t shared_up, shared_down; /* hidden x inner, and back */
    size_t up_w, down_w;           /* the same for every expert */
    size_t norm_g, norm_b;
};

struct part {
    enum part_kind kind;
    int layer;
    struct range matrices, vectors; /* its weights */
};

struct model {
    struct config config;
    size_t n, n_decay;
    size_t token_w, position_w, head_w, norm_g, norm_b;
    struct part *parts;
    int n_parts;
    /* one a layer, whether it has such a part or not */
    struct attn_weights *attn;
    struct mlp_weights *mlp;
    struct moe_weights *moe;

    struct device *dev;
    float *w, *g, *m, *v; /* device, n each */
    struct optimizer_state *state;
};

/* Of a layer: its kind, and the kinds of its parts.  Returns how many. */
enum layer_kind layer_kind(const struct config *config, int layer);
int layer_parts(enum layer_kind kind, const enum part_kind **parts_p);

/* Whether any layer has such a part. */
bool config_has(const struct config *config, enum part_kind kind);

/* The index of a layer's part; -1 when it has none of that kind. */
int model_part(const struct model *model, int layer, enum part_kind kind);

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
