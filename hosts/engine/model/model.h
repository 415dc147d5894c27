/*
 * model.h - a model: its sizes, its parts, and where every weight lies.
 *
 * A model is a list of layers, and a layer is a list of parts.  Parts are what
 * the library's scopes name.  layers.c has the table.
 *
 * All weights are one array, and so are their gradients and the optimizer's
 * moments.  The matrices of all layers come first, then the vectors, so that
 * weight decay is "the first n_decay".  The weights of one part are together,
 * so a part updates two ranges.  If ranks divide the experts, the rank's own
 * experts are the last of the matrices, and every rank has all the other
 * weights.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "device/device.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VOCAB = 256,
    WIDEN = 4
}; /* tokens are bytes; how much wider an MLP is */

enum model_kind {
    MODEL_GPT,
    MODEL_MOE,
    MODEL_MLA,
    MODEL_MAMBA,
    MODEL_HYBRID,
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
    PART_MOE_POST = 7,
    PART_MAMBA = 8
};

/* The values of gh_layer_kind. */
enum layer_kind {
    LAYER_DENSE = 0,
    LAYER_MOE = 1,
    LAYER_MAMBA = 2,
    LAYER_ATTN_ONLY = 3,
    LAYER_MLP_ONLY = 4,
    LAYER_MOE_ONLY = 5
};

/* How many steps a Mamba layer's convolution looks at. */
enum {
    TAPS = 4
};

enum {
    MAX_CHUNKS = 16 /* of a stage of a pipeline */
};

/* What a stage of a pipeline has of a model: a run of layers in each of its
 * chunks, and perhaps the embedding and the head. */
struct share {
    int all; /* layers of the whole model; 0: this is the whole model */
    int n;   /* chunks */
    int first[MAX_CHUNKS], count[MAX_CHUNKS]; /* layers of the whole model */
    bool embeds, heads;
};

struct config {
    int layers, hidden, heads, seq, batch;
    int cp; /* ranks that share a sequence, each with seq tokens of it; 0: as
               1 */
    uint64_t seed;
    bool tied; /* the head has the embedding's weights: a copy, VOCAB x hidden,
                  whose gradients are summed with the embedding's */
    enum model_kind model;
    int experts, top_k;
    int ep, ep_rank;    /* how many ranks divide the experts, and which one this
                           is; ep 0: it has all experts */
    int dense_layers;   /* in a model of experts: first layers without any */
    bool drop_and_pad;  /* every expert takes equally many tokens */
    bool dropless_host; /* the host reads how many, as between ranks */
    bool sync_free;     /* ranks that divide experts exchange room for all
                           rows, so that no host reads how many there are */
    bool shared_expert;
    bool busy_expert;   /* the first weights make the first expert every row's
                           first choice */
    int documents; /* the most that a microbatch is packed of; 0: its sequences
                      are whole */
    int state;           /* of a Mamba layer, for each channel */
    const char *pattern; /* of hybrid layers, cycled; NULL: "M*-E" */
    struct share share;  /* `layers` are those of the share */
};

/* Layers of the whole model. */
static inline int config_all_layers(const struct config *config)
{
    return config->share.all > 0 ? config->share.all : config->layers;
}

static inline bool config_embeds(const struct config *config)
{
    return config->share.all == 0 || config->share.embeds;
}

static inline bool config_heads(const struct config *config)
{
    return config->share.all == 0 || config->share.heads;
}

/* The number in the whole model of a share's layer. */
int config_layer(const struct config *config, int layer);

static inline int config_rows(const struct config *config)
{
    return config->batch * config->seq;
}

static inline int config_cp(const struct config *config)
{
    return config->cp > 1 ? config->cp : 1;
}

/* Tokens of a whole sequence, which are the keys to attend to. */
static inline int config_keys(const struct config *config)
{
    return config->seq * config_cp(config);
}

/* Offsets: where each document begins, where the last one ends, and one more
 * for the rest. */
static inline int config_offsets(const struct config *config)
{
    return config->documents + 2;
}

static inline int config_ep(const struct config *config)
{
    return config->ep > 1 ? config->ep : 1;
}

/* How many experts this rank has, and the first of them. */
static inline int config_own_experts(const struct config *config)
{
    return config->experts / config_ep(config);
}

static inline int config_first_expert(const struct config *config)
{
    return config->ep_rank * config_own_experts(config);
}

/* Rows that one expert has room for if tokens are dropped: a quarter more than
 * an equal share. */
static inline int config_capacity(const struct config *config)
{
    const long long shares = 4LL * config->experts;
    const long long choices = (long long)config_rows(config) * config->top_k;

    return (int)((5 * choices + shares - 1) / shares);
}

/* Rows of all experts together.  A dropless layer has a place for every
 * choice. */
static inline int config_slots(const struct config *config)
{
    return config->drop_and_pad ? config->experts * config_capacity(config)
                                : config_rows(config) * config->top_k;
}

/* Rows that this rank's experts have room for.  If nothing is dropped, every
 * rank may send all of its rows. */
static inline int config_room(const struct config *config)
{
    return config->drop_and_pad ? config_slots(config)
                                : config_ep(config) * config_slots(config);
}

/* Whether each rank has room for all rows of each rank, and only the device
 * knows how many there are. */
static inline bool config_sync_free(const struct config *config)
{
    return config->sync_free && config_ep(config) > 1;
}

/* Whether the host reads how many rows go where. */
static inline bool config_counts_on_host(const struct config *config)
{
    return config->dropless_host ||
           (config_ep(config) > 1 && !config->drop_and_pad &&
            !config->sync_free);
}

/* Runs of rows that a rank's experts get, with room between them. */
static inline int config_blocks(const struct config *config)
{
    return config_sync_free(config) ? config_ep(config) : 1;
}

/* Inner width of an expert. */
static inline int config_expert(const struct config *config)
{
    return 2 * config->hidden;
}

/*
 * Latent attention: a head compares its own `nope` columns of query and key,
 * and `rope` columns that carry the position, whose key is shared by all
 * heads.  Queries go through one low rank, and keys with values through
 * another.
 */
static inline int config_nope(const struct config *config)
{
    return config->hidden / config->heads;
}

static inline int config_rope(const struct config *config)
{
    return 2 * ((config_nope(config) + 3) / 4);
}

static inline int config_q_rank(const struct config *config)
{
    return (config->hidden + 1) / 2;
}

static inline int config_kv_rank(const struct config *config)
{
    return (config->hidden + 3) / 4;
}

/* Columns of all heads' queries, or keys. */
static inline int config_qk(const struct config *config)
{
    return config->heads * (config_nope(config) + config_rope(config));
}

/* A Mamba layer: its channels, and the low rank of its step sizes. */
static inline int config_inner(const struct config *config)
{
    return 2 * config->hidden;
}

static inline int config_dt_rank(const struct config *config)
{
    return (config->hidden + 15) / 16;
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

struct mla_weights {
    size_t q_down, q_up;   /* hidden x q_rank, q_rank x qk */
    size_t kv_down, kv_up; /* hidden x kv_rank, kv_rank x 2 hidden */
    size_t rope_w;         /* hidden x rope: the shared key */
    size_t out_w;          /* hidden x hidden */
    size_t norm_g, norm_b;
    size_t q_norm_g, q_norm_b, kv_norm_g, kv_norm_b;
};

struct mamba_weights {
    size_t in_w, out_w;    /* hidden x 2 inner, inner x hidden */
    size_t conv_w;         /* TAPS x inner, the oldest step first */
    size_t dt_down, dt_up; /* inner x dt_rank, and back */
    size_t bc_w;           /* inner x 2 state */
    size_t norm_g, norm_b;
    size_t conv_b, dt_b, skip; /* inner */
    size_t decay;              /* state x inner: log of -A */
};

struct part {
    enum part_kind kind;
    int layer;
    struct range matrices, vectors; /* its weights */
};

struct model {
    struct config config;
    bool embeds, heads; /* its first part follows the embedding; the head
                           follows its last part */
    bool delay_wgrad; /* sets keep what weights' gradients are made from */
    unsigned offload; /* bit n: what parts keep of saved_module n is not in the
                         sets, but placed in each pass */
    bool folds_embedding, folds_head; /* they run with the parts beside them:
                                         sets have what goes between */
    const struct stash *stash; /* keeps rows of experts; NULL: nothing does */
    bool stash_counts; /* sets keep these rows too, as the stash only counts */
    size_t n, n_decay;
    struct range experts; /* this rank's own; none: every rank has all */
    size_t token_w, position_w, head_w, norm_g, norm_b;
    struct part *parts;
    int n_parts;
    /* one for each layer, even if it has no such part */
    struct attn_weights *attn;
    struct mlp_weights *mlp;
    struct mla_weights *mla;
    struct moe_weights *moe;
    struct mamba_weights *mamba;

    struct device *dev;
    float *w, *g, *m, *v; /* device, n each */
    struct optimizer_state *state;
    float *rotary; /* keys x rope: cosines, then sines; NULL: none needed */
};

const char *model_name(enum model_kind model);

/* The kind of a layer, and the kinds of its parts; layer_parts() returns how
 * many there are. */
enum layer_kind layer_kind(const struct config *config, int layer);
int layer_parts(enum layer_kind kind, const enum part_kind **parts_p);

/* Whether every letter names a layer: M mamba, * attention, - MLP, E MoE. */
bool pattern_valid(const char *pattern);

/* Whether any layer has such a part. */
bool config_has(const struct config *config, enum part_kind kind);

/* The index of a layer's part; -1 when it has none of that kind. */
int model_part(const struct model *model, int layer, enum part_kind kind);

/* Whether any part from first to last has weights. */
bool model_has_weights(const struct model *model, int first, int last);

/* Bytes of the rotary tables. */
size_t model_rotary_bytes(const struct config *config);

/* Lays the weights out, without a device.  Returns 0, or -1 when memory ran
 * out. */
int model_init(struct model *model, const struct config *config);

/* Takes device memory and fills it from the seed.  Returns 0, or -1:
 * dev->error. */
int model_upload(struct model *model, struct device *dev);

void model_free(struct model *model);

/* Writes the first values of all weights.  They are the same for the same seed,
 * however the experts and the layers are divided.  Returns 0, or -1 when memory
 * ran out. */
int model_first_weights(const struct model *model, float *w);

/* Makes a view of the model for sequences of another length, at most its own,
 * that `cp` ranks share.  It uses the model's weights, and has rotary tables of
 * its own.  Returns 0, or -1: dev->error. */
int model_view(struct model *view, const struct model *model, int seq, int cp);
void model_view_free(struct model *view);

/* Sums numbers of all stages of a pipeline.  Returns 0, or -1: dev->error. */
typedef int model_sum_fn(void *user, float *data, size_t count);

/* FNV-1a over the bytes of all weights that every rank has, and over those of
 * model.experts.  Of a share, the weights of the whole model are hashed, which
 * `sum` puts together.  Returns 0, or -1. */
int model_hash(struct model *model, model_sum_fn *sum, void *user,
               uint64_t *hash_p, uint64_t *experts_p);

/* The whole model that a share is of, with the same division of experts.
 * Returns 0, or -1 when memory ran out. */
int model_init_whole(struct model *whole, const struct model *model);
/* Calls each() for every run of weights, with its offset in both models.  The
 * weights of divided experts lie otherwise if `whole` does not divide them;
 * they are left out then. */
void model_each_run(const struct model *model, const struct model *whole,
                    void (*each)(void *user, size_t own, size_t at,
                                 size_t count),
                    void *user);
/* Makes a view of a chunk's parts.  It uses everything of the model, and is not
 * freed. */
void model_view_chunk(struct model *view, const struct model *model, int chunk);

#endif
