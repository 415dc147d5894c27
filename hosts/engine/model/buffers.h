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

#include "model/model.h"
#include "model/saved.h"
#include "model/stash.h"

/*
 * rows = batch * seq; c = hidden; everything rows x columns.
 *
 * What begins with d_ is a gradient that a part's backward makes for itself.
 * The gradients of the part's weights are made of it.  When those are
 * delayed every part has its own; else all parts share one piece of memory,
 * as nobody reads it after the part's backward.
 */
struct attn_buffers {
    float *norm, *mean, *rstd; /* c, 1, 1 */
    float *qkv;                /* 3 c */
    float *probs;              /* batch x heads x seq x keys */
    float *context;            /* c */
    float *d_qkv, *d_norm;     /* 3 c, c */
};

struct mla_buffers {
    float *norm, *mean, *rstd;                   /* hidden, 1, 1 */
    float *q_low, *q_norm, *q_mean, *q_rstd;     /* q_rank, q_rank, 1, 1 */
    float *kv_low, *kv_norm, *kv_mean, *kv_rstd; /* kv_rank, ... */
    float *q_up, *kv, *rope; /* qk, 2 hidden, rope: before the turn */
    float *q, *k;            /* qk */
    float *probs, *context;
    float *d_q_up, *d_q_norm, *d_q_low; /* qk, q_rank, q_rank */
    float *d_kv, *d_kv_norm, *d_kv_low; /* 2 hidden, kv_rank, kv_rank */
    float *d_rope, *d_norm;             /* rope, hidden */
};

/* `inner` channels, each with `state` numbers that a step carries on.  If ranks
 * share sequences, each rank has all rows of them, except for the norm's. */
struct mamba_buffers {
    float *norm, *mean, *rstd; /* hidden, 1, 1 */
    float *xz;                 /* 2 inner: to convolve, and the gate */
    float *pre, *u;            /* inner: convolved; and through SiLU */
    float *dt_low, *bc;        /* dt_rank, 2 state */
    float *dt;                 /* inner: before softplus */
    float *states;             /* state x inner */
    float *y, *gated;          /* inner */
    float *d_xz;               /* 2 inner */
    float *d_y, *d_u, *d_dt;   /* inner */
    float *d_dt_low, *d_bc;    /* dt_rank, 2 state */
    float *d_states, *d_norm;  /* state x inner, hidden */
    float *d_xz_own;           /* 2 inner, of this rank's rows; NULL: d_xz has
                                  them */
};

struct mlp_buffers {
    float *norm, *mean, *rstd; /* c, 1, 1 */
    float *wide, *gelu;        /* 4 c */
    float *d_wide, *d_norm;    /* 4 c, c */
};

/*
 * Parts of a mixture of experts hand each other more than one hidden state.
 * All of it is here, so that a later part finds it whoever ran the earlier
 * one.  choices = rows x top_k; slots are rows in the experts' order.
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
    int *all_counts;     /* ep x experts, as counted by every rank */
    int *counts_host;    /* pinned: all_counts or counts, if the host reads
                            them */
    /* of config_sync_free(), by moe_blocks and moe_received */
    int *block_source, *block_slot; /* ep x slots, choices */
    int *rank_counts, *rank_first;  /* ep x own experts */
    int *rank_rows;                 /* ep */
    /* dispatch, experts, combine; room: slots, or what comes of other ranks */
    float *dispatched;  /* room x c */
    float *wide, *gelu; /* room x inner */
    float *expert_out;  /* room x c */
    float *combined;    /* choices x c */
    /* backward, from post to dispatch */
    const float *d_base; /* c */
    float *d_base_own;   /* where post keeps it; NULL: it is in the set */
    float *d_prob;       /* choices */
    float *d_combined;   /* choices x c */
    float *d_expert_out, *d_dispatched; /* room x c */
    float *d_norm;                      /* c */
    /* backward, of the experts and of the router */
    float *d_wide;              /* room x inner */
    float *d_logits, *d_shared; /* experts, inner */
    float *d_norm_sum;          /* c: d_norm and what the router adds */
    const uint32_t *entries, *later; /* of the stash, if there is one, a
                                        config_blocks() each: from the forward
                                        to the backward, and from there to the
                                        weights' gradients */
};

/* For sequences that several ranks share, for the current part: the keys and
 * values of this rank's tokens, one after the other, and those of all ranks.
 * In a ring the first two blocks take turns. */
struct cp_buffers {
    int *places;                 /* 1: of this rank's tokens among all ranks' */
    int *keys;                   /* cp: of all ranks' tokens */
    float *own_k, *own_v;        /* columns of all heads' keys, and values */
    float *all_k, *all_v;        /* the same of cp ranks */
    float *all_dk, *all_dv;      /* their gradients */

    /* of Mamba layers */
    int *all_starts;             /* cp: as starts, of all ranks' tokens */
    float *own_rows, *all_rows;  /* 2 inner; the same of cp ranks */
};

/* If ranks divide the experts: this rank's rows in the experts' order, before
 * they are sent and after they have come back.  They are of the current
 * exchange. */
struct exchange_buffers {
    float *out, *back; /* slots x c; of config_sync_free() room x c */
};

/* What a part hands on, forward and backward. */
struct part_buffers {
    float *out, *d_in;
};

struct set {
    struct device *dev;
    void *memory;
    size_t bytes;              /* of memory */
    const struct stash *stash; /* where it has entries; NULL: nowhere */
    int n_entries;
    uint32_t *entries;
    int *counts_host; /* pinned, of all layers */
    struct part_buffers *parts;
    struct attn_buffers *attn; /* one a layer */
    struct mlp_buffers *mlp;
    struct mla_buffers *mla;
    struct moe_buffers *moe;
    struct mamba_buffers *mamba;
    struct saved *saved; /* of modules that are offloaded */
    int n_saved;

    int *starts; /* 1: where each token's document begins; NULL: no documents */
    struct cp_buffers cp;             /* NULLs if no sequence is shared */
    struct exchange_buffers exchange; /* NULLs if no experts are divided */

    /* the head */
    float *norm, *mean, *rstd, *logits, *losses, *d_norm;

    /* if they run with the parts: what the first part reads, what the last
     * part's backward reads, and the mean loss; else NULL */
    float *x, *d_head, *loss;

    /* all parts share this: no weight's gradient is made from it */
    float *d_probs;   /* batch x heads x seq x keys */
    float *d_q, *d_k; /* qk: of latent attention */
    float *d_gated;   /* inner: of a Mamba layer */
};

/* Returns 0, or -1 with dev->error set and nothing kept. */
int set_init(struct set *set, const struct model *model, struct device *dev);
void set_free(struct set *set);
/* The bytes of each of set.saved for a microbatch of the view's length.  The
 * caller frees them.  Returns 0, or -1 when memory ran out. */
int set_measure_saved(const struct model *view, size_t **bytes_p);

static inline float *set_part_out(const struct set *set, int part)
{
    return set->parts[part].out;
}

/* What a set has for each layer, for the embedding, for the head, and for all
 * layers together. */
struct set_bytes {
    size_t *layers; /* as many as the model has; the caller frees them */
    size_t embedding, head, rest;
};

/* Measures a set, without a device.  Returns 0, or -1 when memory ran out. */
int set_measure(const struct model *model, struct set_bytes *bytes);

/* Points the set to what a part has written, if that is offloaded.  Other
 * results are always at the same address. */
void set_place_out(const struct set *set, int part, float *out);

/* Each part has its own: a run of parts, whatever its length, never overwrites
 * the gradient that it was given, and so can be run again. */
static inline float *set_part_gradient(const struct set *set, int part)
{
    return set->parts[part].d_in;
}

#endif
