/*
 * buffers.h - one microbatch's activations: a set.
 *
 * Forward writes a set, the same microbatch's backward reads it, and then the
 * next microbatch may have it.  A set is one allocation and its addresses
 * never change, which is what lets graphs hold them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_BUFFERS_H
#define ENGINE_BUFFERS_H

#include "model.h"

/* rows = batch * seq; c = hidden; everything rows x columns */
struct attn_buffers {
    float *norm, *mean, *rstd; /* c, 1, 1 */
    float *qkv;                /* 3 c */
    float *probs;              /* batch x heads x seq x seq */
    float *context;            /* c */
    float *out;                /* c */
    float *d_in;               /* c: backward's result */
};

struct mlp_buffers {
    float *norm, *mean, *rstd; /* c, 1, 1 */
    float *wide, *gelu;        /* 4 c */
    float *out;                /* c */
    float *d_in;               /* c */
};

struct set {
    struct device *dev;
    void *memory;
    struct attn_buffers *attn; /* one a layer */
    struct mlp_buffers *mlp;

    /* the head */
    float *norm, *mean, *rstd, *logits, *losses;

    /* scratch of backward */
    float *d_rows, *d_wide, *d_probs;
};

/* 0, or -1 with dev->error set and nothing kept. */
int set_init(struct set *set, const struct config *config, struct device *dev);
void set_free(struct set *set);

/* Part p is layer p / 2's attention, or MLP when p is odd. */
static inline float *set_part_out(const struct set *set, int part)
{
    return part % 2 == 0 ? set->attn[part / 2].out : set->mlp[part / 2].out;
}

/* One for every part: a run of parts, whatever its length, never overwrites
 * the gradient that it was given, and so can be run again. */
static inline float *set_part_gradient(const struct set *set, int part)
{
    return part % 2 == 0 ? set->attn[part / 2].d_in : set->mlp[part / 2].d_in;
}

#endif
