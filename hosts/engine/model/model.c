/*
 * model.c - lays out the weights, allocates them, and hashes the trained ones.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t take(size_t *next, size_t count)
{
    size_t first = *next;

    *next += count;
    return first;
}

static void lay_out_attn_matrices(struct model *model, int layer, size_t *next)
{
    struct attn_weights *attn = &model->attn[layer];
    const size_t c = (size_t)model->config.hidden;

    attn->qkv_w = take(next, c * 3 * c);
    attn->out_w = take(next, c * c);
}

static void lay_out_mla_matrices(struct model *model, int layer, size_t *next)
{
    struct mla_weights *mla = &model->mla[layer];
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    const size_t q_rank = (size_t)config_q_rank(config);
    const size_t kv_rank = (size_t)config_kv_rank(config);

    mla->q_down = take(next, c * q_rank);
    mla->q_up = take(next, q_rank * (size_t)config_qk(config));
    mla->kv_down = take(next, c * kv_rank);
    mla->kv_up = take(next, kv_rank * 2 * c);
    mla->rope_w = take(next, c * (size_t)config_rope(config));
    mla->out_w = take(next, c * c);
}

static void lay_out_mamba_matrices(struct model *model, int layer, size_t *next)
{
    struct mamba_weights *mamba = &model->mamba[layer];
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    const size_t inner = (size_t)config_inner(config);
    const size_t rank = (size_t)config_dt_rank(config);

    mamba->in_w = take(next, c * 2 * inner);
    mamba->conv_w = take(next, TAPS * inner);
    mamba->dt_down = take(next, inner * rank);
    mamba->dt_up = take(next, rank * inner);
    mamba->bc_w = take(next, inner * 2 * (size_t)config->state);
    mamba->out_w = take(next, inner * c);
}

static void lay_out_mlp_matrices(struct model *model, int layer, size_t *next)
{
    struct mlp_weights *mlp = &model->mlp[layer];
    const size_t c = (size_t)model->config.hidden;

    mlp->up_w = take(next, c * WIDEN * c);
    mlp->down_w = take(next, WIDEN * c * c);
}

static void lay_out_router_matrices(struct model *model, int layer,
                                    size_t *next)
{
    struct moe_weights *moe = &model->moe[layer];
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    const size_t inner = (size_t)config_expert(config);

    moe->router_w = take(next, c * (size_t)config->experts);
    if (config->shared_expert) {
        moe->shared_up = take(next, c * inner);
        moe->shared_down = take(next, inner * c);
    }
}

static void lay_out_experts_matrices(struct model *model, int layer,
                                     size_t *next)
{
    struct moe_weights *moe = &model->moe[layer];
    const struct config *config = &model->config;
    const size_t one = (size_t)config->hidden * (size_t)config_expert(config);

    moe->up_w = take(next, (size_t)config_own_experts(config) * one);
    moe->down_w = take(next, (size_t)config_own_experts(config) * one);
}

static void lay_out_part_matrices(struct model *model, struct part *part,
                                  size_t *next)
{
    part->matrices.first = *next;
    switch (part->kind) {
    case PART_ATTN:
        (model->config.model == MODEL_MLA
             ? lay_out_mla_matrices
             : lay_out_attn_matrices)(model, part->layer, next);
        break;
    case PART_MLP:
        lay_out_mlp_matrices(model, part->layer, next);
        break;
    case PART_MOE_ROUTER:
        lay_out_router_matrices(model, part->layer, next);
        break;
    case PART_MOE_EXPERTS:
        lay_out_experts_matrices(model, part->layer, next);
        break;
    case PART_MAMBA:
        lay_out_mamba_matrices(model, part->layer, next);
        break;
    default: /* moves tokens and has no weights */
        break;
    }
    part->matrices.count = *next - part->matrices.first;
}

static void lay_out_matrices(struct model *model)
{
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    const bool divided = config_ep(config) > 1;
    size_t next = 0;

    if (config_embeds(config)) {
        model->token_w = take(&next, VOCAB * c);
        model->position_w = take(&next, (size_t)config_keys(config) * c);
    }
    if (config_heads(config)) {
        model->head_w = take(&next, c * VOCAB);
    }
    for (int i = 0; i < model->n_parts; i++) {
        if (!divided || model->parts[i].kind != PART_MOE_EXPERTS) {
            lay_out_part_matrices(model, &model->parts[i], &next);
        }
    }
    model->experts.first = next;
    for (int i = 0; i < model->n_parts; i++) {
        if (divided && model->parts[i].kind == PART_MOE_EXPERTS) {
            lay_out_part_matrices(model, &model->parts[i], &next);
        }
    }
    model->experts.count = next - model->experts.first;
    model->n_decay = next;
}

static void lay_out_attn_vectors(struct model *model, int layer, size_t *next)
{
    struct attn_weights *attn = &model->attn[layer];
    const size_t c = (size_t)model->config.hidden;

    attn->norm_g = take(next, c);
    attn->norm_b = take(next, c);
    attn->qkv_b = take(next, 3 * c);
    attn->out_b = take(next, c);
}

static void lay_out_mla_vectors(struct model *model, int layer, size_t *next)
{
    struct mla_weights *mla = &model->mla[layer];
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;

    mla->norm_g = take(next, c);
    mla->norm_b = take(next, c);
    mla->q_norm_g = take(next, (size_t)config_q_rank(config));
    mla->q_norm_b = take(next, (size_t)config_q_rank(config));
    mla->kv_norm_g = take(next, (size_t)config_kv_rank(config));
    mla->kv_norm_b = take(next, (size_t)config_kv_rank(config));
}

static void lay_out_mamba_vectors(struct model *model, int layer, size_t *next)
{
    struct mamba_weights *mamba = &model->mamba[layer];
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    const size_t inner = (size_t)config_inner(config);

    mamba->norm_g = take(next, c);
    mamba->norm_b = take(next, c);
    mamba->conv_b = take(next, inner);
    mamba->dt_b = take(next, inner);
    mamba->skip = take(next, inner);
    mamba->decay = take(next, (size_t)config->state * inner);
}

static void lay_out_mlp_vectors(struct model *model, int layer, size_t *next)
{
    struct mlp_weights *mlp = &model->mlp[layer];
    const size_t c = (size_t)model->config.hidden;

    mlp->norm_g = take(next, c);
    mlp->norm_b = take(next, c);
    mlp->up_b = take(next, WIDEN * c);
    mlp->down_b = take(next, c);
}

static void lay_out_vectors(struct model *model)
{
    const size_t c = (size_t)model->config.hidden;
    size_t next = model->n_decay;

    if (config_heads(&model->config)) {
        model->norm_g = take(&next, c);
        model->norm_b = take(&next, c);
    }
    for (int i = 0; i < model->n_parts; i++) {
        struct part *part = &model->parts[i];

        part->vectors.first = next;
        switch (part->kind) {
        case PART_ATTN:
            (model->config.model == MODEL_MLA
                 ? lay_out_mla_vectors
                 : lay_out_attn_vectors)(model, part->layer, &next);
            break;
        case PART_MAMBA:
            lay_out_mamba_vectors(model, part->layer, &next);
            break;
        case PART_MLP:
            lay_out_mlp_vectors(model, part->layer, &next);
            break;
        case PART_MOE_ROUTER:
            model->moe[part->layer].norm_g = take(&next, c);
            model->moe[part->layer].norm_b = take(&next, c);
            break;
        default:
            break;
        }
        part->vectors.count = next - part->vectors.first;
    }
    model->n = next;
}

static int list_parts(struct model *model)
{
    const struct config *config = &model->config;
    const enum part_kind *kinds;
    int n = 0;

    for (int i = 0; i < config->layers; i++) {
        n += layer_parts(layer_kind(config, i), &kinds);
    }
    model->parts = calloc((size_t)n, sizeof(*model->parts));
    if (model->parts == NULL) {
        return -1;
    }
    for (int i = 0; i < config->layers; i++) {
        const int parts = layer_parts(layer_kind(config, i), &kinds);

        for (int j = 0; j < parts; j++) {
            model->parts[model->n_parts++] = (struct part){
                .kind = kinds[j],
                .layer = i,
            };
        }
    }
    return 0;
}

int model_part(const struct model *model, int layer, enum part_kind kind)
{
    for (int i = 0; i < model->n_parts; i++) {
        if (model->parts[i].layer == layer && model->parts[i].kind == kind) {
            return i;
        }
    }
    return -1;
}

bool model_has_weights(const struct model *model, int first, int last)
{
    size_t n = 0;

    for (int i = first; i <= last; i++) {
        n += model->parts[i].matrices.count + model->parts[i].vectors.count;
    }
    return n > 0;
}

int model_init(struct model *model, const struct config *config)
{
    const size_t layers = (size_t)config->layers;

    memset(model, 0, sizeof(*model));
    model->config = *config;
    model->embeds = config_embeds(config);
    model->heads = config_heads(config);
    model->attn = calloc(layers, sizeof(*model->attn));
    model->mlp = calloc(layers, sizeof(*model->mlp));
    model->mla = calloc(layers, sizeof(*model->mla));
    model->moe = calloc(layers, sizeof(*model->moe));
    model->mamba = calloc(layers, sizeof(*model->mamba));
    if (model->attn == NULL || model->mlp == NULL || model->mla == NULL ||
        model->moe == NULL || model->mamba == NULL || list_parts(model) != 0) {
        model_free(model);
        return -1;
    }
    lay_out_matrices(model);
    lay_out_vectors(model);
    return 0;
}

size_t model_rotary_bytes(const struct config *config)
{
    return (size_t)config_keys(config) * (size_t)config_rope(config) *
           sizeof(float);
}

/* Uploads the rotary tables, once for all layers: the angle by which position p
 * turns pair j. */
static int upload_rotary(struct model *model)
{
    const struct config *config = &model->config;
    const int rope = config_rope(config);
    const size_t bytes = model_rotary_bytes(config);
    float *table;

    if (config->model != MODEL_MLA) {
        return 0;
    }
    table = malloc(bytes);
    if (table == NULL) {
        return device_check(model->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    for (int p = 0; p < config_keys(config); p++) {
        for (int j = 0; j < rope / 2; j++) {
            const double turn = p * pow(10000.0, -2.0 * j / rope);

            table[p * rope + j] = (float)cos(turn);
            table[p * rope + rope / 2 + j] = (float)sin(turn);
        }
    }
    model->rotary = device_alloc(model->dev, bytes);
    DEVICE_CALL(model->dev, cuMemcpyHtoD, device_address(model->rotary), table,
                bytes);
    free(table);
    return model->dev->code == CUDA_SUCCESS ? 0 : -1;
}

int model_upload(struct model *model, struct device *dev)
{
    const size_t bytes = model->n * sizeof(float);
    float *first = malloc(bytes);

    model->dev = dev;
    if (first == NULL || model_first_weights(model, first) != 0) {
        free(first);
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }

    model->w = device_alloc(dev, bytes);
    model->g = device_alloc(dev, bytes);
    model->m = device_alloc(dev, bytes);
    model->v = device_alloc(dev, bytes);
    model->state = device_alloc(dev, sizeof(*model->state));
    DEVICE_CALL(dev, cuMemcpyHtoD, device_address(model->w), first, bytes);
    memset(first, 0, bytes);
    DEVICE_CALL(dev, cuMemcpyHtoD, device_address(model->m), first, bytes);
    DEVICE_CALL(dev, cuMemcpyHtoD, device_address(model->v), first, bytes);
    DEVICE_CALL(dev, cuMemcpyHtoD, device_address(model->state), first,
                sizeof(*model->state));

    free(first);
    return upload_rotary(model);
}

int model_view(struct model *view, const struct model *model, int seq, int cp)
{
    *view = *model;
    view->config.seq = seq;
    view->config.cp = cp;
    view->rotary = NULL;
    return upload_rotary(view);
}

void model_view_chunk(struct model *view, const struct model *model, int chunk)
{
    const struct share *share = &model->config.share;
    int layer = 0, first = 0, n = 0;

    *view = *model;
    if (share->all == 0) {
        return;
    }
    for (int i = 0; i < chunk; i++) {
        layer += share->count[i];
    }
    while (first < model->n_parts && model->parts[first].layer < layer) {
        first++;
    }
    while (first + n < model->n_parts &&
           model->parts[first + n].layer < layer + share->count[chunk]) {
        n++;
    }
    view->parts += first;
    view->n_parts = n;
    view->embeds = share->first[chunk] == 0;
    view->heads = share->first[chunk] + share->count[chunk] == share->all;
}

void model_view_free(struct model *view)
{
    if (view->dev != NULL) {
        device_free(view->dev, view->rotary);
    }
    memset(view, 0, sizeof(*view));
}

void model_free(struct model *model)
{
    if (model->dev != NULL) {
        device_free(model->dev, model->w);
        device_free(model->dev, model->g);
        device_free(model->dev, model->m);
        device_free(model->dev, model->v);
        device_free(model->dev, model->state);
        device_free(model->dev, model->rotary);
    }
    free(model->attn);
    free(model->mlp);
    free(model->mla);
    free(model->moe);
    free(model->mamba);
    free(model->parts);
    memset(model, 0, sizeof(*model));
}

#define FNV_FIRST 0xcbf29ce484222325u

static uint64_t hash_on(uint64_t hash, const float *w, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)w;

    for (size_t i = 0; i < n * sizeof(*w); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

int model_init_whole(struct model *whole, const struct model *model)
{
    struct config config = model->config;

    config.layers = config_all_layers(&config);
    config.share = (struct share){ 0 };
    return model_init(whole, &config);
}

void model_each_run(const struct model *model, const struct model *whole,
                    void (*each)(void *user, size_t own, size_t at,
                                 size_t count),
                    void *user)
{
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    int at = 0;

    if (config_embeds(config)) {
        each(user, model->token_w, whole->token_w, VOCAB * c);
        each(user, model->position_w, whole->position_w,
             (size_t)config_keys(config) * c);
    }
    if (config_heads(config)) {
        each(user, model->head_w, whole->head_w, c * VOCAB);
        each(user, model->norm_g, whole->norm_g, c);
        each(user, model->norm_b, whole->norm_b, c);
    }
    for (int i = 0; i < model->n_parts; i++) {
        const struct part *part = &model->parts[i];

        while (whole->parts[at].kind != part->kind ||
               whole->parts[at].layer != config_layer(config, part->layer)) {
            at = (at + 1) % whole->n_parts;
        }
        if (part->matrices.count == whole->parts[at].matrices.count) {
            each(user, part->matrices.first, whole->parts[at].matrices.first,
                 part->matrices.count);
        }
        each(user, part->vectors.first, whole->parts[at].vectors.first,
             part->vectors.count);
    }
}

struct copying {
    const float *from;
    float *to;
};

static void copy_out(void *user, size_t own, size_t at, size_t count)
{
    const struct copying *copying = user;

    memcpy(copying->to + at, copying->from + own, count * sizeof(*copying->to));
}

/* Puts the weights of the whole model together on the host.  The caller frees
 * them; NULL: dev->error. */
static float *gather(const struct model *model, const struct model *whole,
                     const float *own, model_sum_fn *sum, void *user)
{
    float *all = calloc(whole->n, sizeof(*all));
    struct copying copying = { own, all };

    if (all == NULL) {
        (void)device_check(model->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    model_each_run(model, whole, copy_out, &copying);
    if (sum(user, all, whole->n) != 0) {
        free(all);
        return NULL;
    }
    return all;
}

static void hash_all(const struct model *model, const float *w,
                     uint64_t *hash_p, uint64_t *experts_p)
{
    const struct range experts = model->experts;
    const size_t after = experts.first + experts.count;

    *hash_p = hash_on(hash_on(FNV_FIRST, w, experts.first), w + after,
                      model->n - after);
    *experts_p = hash_on(FNV_FIRST, w + experts.first, experts.count);
}

/* Hashes the whole model that a share is of. */
static int hash_whole(const struct model *model, const float *own,
                      model_sum_fn *sum, void *user, uint64_t *hash_p,
                      uint64_t *experts_p)
{
    struct model whole;
    float *all;

    if (model_init_whole(&whole, model) != 0) {
        return device_check(model->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    all = gather(model, &whole, own, sum, user);
    if (all != NULL) {
        hash_all(&whole, all, hash_p, experts_p);
    }
    free(all);
    model_free(&whole);
    return all != NULL ? 0 : -1;
}

int model_hash(struct model *model, model_sum_fn *sum, void *user,
               uint64_t *hash_p, uint64_t *experts_p)
{
    const size_t bytes = model->n * sizeof(float);
    float *copy = malloc(bytes);
    int result;

    if (copy == NULL) {
        return device_check(model->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = DEVICE_CALL(model->dev, cuMemcpyDtoH, copy,
                         device_address(model->w), bytes);
    if (result == 0 && model->config.share.all > 0) {
        result = hash_whole(model, copy, sum, user, hash_p, experts_p);
    } else if (result == 0) {
        hash_all(model, copy, hash_p, experts_p);
    }
    free(copy);
    return result;
}
