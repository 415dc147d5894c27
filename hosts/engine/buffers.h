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
};

struct mla_buffers {
    float *norm, *mean, *rstd;                   /* hidden, 1, 1 */
    float *q_low, *q_norm, *q_mean, *q_rstd;     /* q_rank, q_rank, 1, 1 */
    float *kv_low, *kv_norm, *kv_mean, *kv_rstd; /* kv_rank, ... */
    float *q_up, *kv, *rope; /* qk, 2 hidden, rope: before the turn */
    float *q, *k;            /* qk */
    float *probs, *context;
};

/* inner channels, each with `state` numbers that a step carries on */
struct mamba_buffers {
    float *norm, *mean, *rstd; /* hidden, 1, 1 */
    float *xz;                 /* 2 inner: to convolve, and the gate */
    float *pre, *u;            /* inner: convolved; and through SiLU */
    float *dt_low, *bc;        /* dt_rank, 2 state */
    float *dt;                 /* inner: before softplus */
    float *states;             /* state x inner */
    float *y, *gated;          /* inner */
};

struct mlp_buffers {
    float *norm, *mean, *rstd; /* c, 1, 1 */
    float *wide, *gelu;        /* 4 c */
};

/*
 * Parts of a mixture of experts hand more to each other than one hidden
 * state, so all of it lies here, where a later part finds it whoever ran the
 * earlier one.  choices = rows x top_k; slots are rows in the experts' order.
 */
struct moe_buffers {
    /* router */
    float *norm, *mean, *rstd;        /* c, 1, 1 */
    float *scores;                    /* experts */
    int *choice;                      /* top_k: the routing map */
    float *prob;                      /* top_k */
    float *shared_wide, *shared_gelu; /* inner */
    float *base; /* c: the residual, and what the shared expert adds */
    /* preprocess */
    int *counts, *first; /* experts */
    int *slot;           /* of every choice; -1: dropped */
    int *source;         /* the choice in every slot; -1: padding */
    int *counts_host;    /* pinned; when the host reads counts */
    /* dispatch, experts, combine */
    float *dispatched;  /* slots x c */
    float *wide, *gelu; /* slots x inner */
    float *expert_out;  /* slots x c */
    float *combined;    /* choices x c */
    /* backward, from post to dispatch */
    const float *d_base; /* c */
    float *d_base_own;   /* where post keeps it; NULL: it lies with the set */
    float *d_prob;       /* choices */
    float *d_combined;   /* choices x c */
    float *d_expert_out, *d_dispatched; /* slots x c */
    float *d_norm;                      /* c */
};

/* What a part hands on, forward and backward. */
struct part_buffers {
    float *out, *d_in;
};

struct set {
    struct device *dev;
    void *memory;
    int *counts_host; /* pinned, of all layers */
    struct part_buffers *parts;
    struct attn_buffers *attn; /* one a layer */
    struct mlp_buffers *mlp;
    struct mla_buffers *mla;
    struct moe_buffers *moe;
    struct mamba_buffers *mamba;

    /* the head */
    float *norm, *mean, *rstd, *logits, *losses;

    /* scratch of backward */
    float *d_rows, *d_wide, *d_probs;
    struct mla_scratch {
        float *q, *k, *q_up;   /* qk */
        float *kv, *rope;      /* 2 hidden, rope */
        float *low, *low_norm; /* the larger rank */
    } d_mla;
    struct mamba_scratch {
        float *xz;            /* 2 inner */
        float *gated, *y, *u; /* inner */
        float *dt, *dt_low, *bc;
        float *states; /* state x inner */
    } d_mamba;
};

/* 0, or -1 with dev->error set and nothing kept. */
int set_init(struct set *set, const struct model *model, struct device *dev);
void set_free(struct set *set);

static inline float *set_part_out(const struct set *set, int part)
{
    return set->parts[part].out;
}

/* One for every part: a run of parts, whatever its length, never overwrites
 * the gradient that it was given, and so can be run again. */
static inline float *set_part_gradient(const struct set *set, int part)
{
    return set->parts[part].d_in;
}

#endif
