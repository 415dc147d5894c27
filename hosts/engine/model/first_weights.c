/*
 * first_weights.c - the first values of all weights, made from the seed.
 *
 * Ranks that divide the experts make the values of all experts and take their
 * own, so that a seed means the same model however it is divided.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A score for the first expert that is never outweighed: not by a normed
 * number, nor by its change in some thousand steps. */
#define BUSY 16.0f

/* splitmix64: small, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Near enough to a normal distribution: the sum of twelve uniform numbers,
 * minus six.  It needs no libm, so the first weights are the same bits on every
 * machine. */
static float next_normal(uint64_t *state)
{
    float sum = -6.0f;

    for (int i = 0; i < 12; i++) {
        sum += (float)(next_random(state) >> 40) * (1.0f / 16777216.0f);
    }
    return sum;
}

static void fill_normal(float *w, size_t count, float scale, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        w[i] = scale * next_normal(state);
    }
}

static void fill(float *w, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        w[i] = value;
    }
}

static void first_weights_of_attn(const struct model *model, int layer,
                                  float residual, float *w, uint64_t *state)
{
    const struct config *config = &model->config;
    const struct attn_weights *attn = &model->attn[layer];
    const struct mla_weights *mla = &model->mla[layer];
    const size_t c = (size_t)config->hidden;

    if (config->model != MODEL_MLA) {
        fill(w + attn->norm_g, c, 1.0f);
        fill_normal(w + attn->out_w, c * c, residual, state);
        return;
    }
    fill(w + mla->norm_g, c, 1.0f);
    fill(w + mla->q_norm_g, (size_t)config_q_rank(config), 1.0f);
    fill(w + mla->kv_norm_g, (size_t)config_kv_rank(config), 1.0f);
    fill_normal(w + mla->out_w, c * c, residual, state);
}

/* Gives steps of about a tenth, and states that forget at different speeds. */
static void first_weights_of_mamba(const struct model *model, int layer,
                                   float residual, float *w, uint64_t *state)
{
    const struct config *config = &model->config;
    const struct mamba_weights *mamba = &model->mamba[layer];
    const size_t c = (size_t)config->hidden;
    const size_t inner = (size_t)config_inner(config);

    fill(w + mamba->norm_g, c, 1.0f);
    fill_normal(w + mamba->conv_w, TAPS * inner, 0.4f, state);
    fill_normal(w + mamba->out_w, inner * c, residual, state);
    fill(w + mamba->dt_b, inner, -2.0f);
    fill(w + mamba->skip, inner, 1.0f);
    for (size_t s = 0; s < (size_t)config->state; s++) {
        fill(w + mamba->decay + s * inner, inner, 0.25f * (float)s);
    }
}

static void first_weights_of(const struct model *model, const struct part *part,
                             float *w, uint64_t *state)
{
    const struct config *config = &model->config;
    const struct mlp_weights *mlp = &model->mlp[part->layer];
    const struct moe_weights *moe = &model->moe[part->layer];
    const size_t c = (size_t)config->hidden;
    const size_t expert = c * (size_t)config_expert(config);
    /* What adds to the residual stream begins smaller in deeper models. */
    const float residual = 0.02f / sqrtf(2.0f * (float)config->layers);

    switch (part->kind) {
    case PART_ATTN:
        first_weights_of_attn(model, part->layer, residual, w, state);
        break;
    case PART_MLP:
        fill(w + mlp->norm_g, c, 1.0f);
        fill_normal(w + mlp->down_w, WIDEN * c * c, residual, state);
        break;
    case PART_MOE_ROUTER:
        fill(w + moe->norm_g, c, 1.0f);
        if (config->busy_expert) {
            w[moe->norm_b] = BUSY;
            w[moe->router_w] = 1.0f; /* from the first column to the first
                                        expert */
        }
        if (config->shared_expert) {
            fill_normal(w + moe->shared_down, expert, residual, state);
        }
        break;
    case PART_MOE_EXPERTS:
        fill_normal(w + moe->down_w, (size_t)config->experts * expert, residual,
                    state);
        break;
    case PART_MAMBA:
        first_weights_of_mamba(model, part->layer, residual, w, state);
        break;
    default:
        break;
    }
}

static void make_first_weights(const struct model *model, float *w)
{
    uint64_t state = model->config.seed;

    memset(w, 0, model->n * sizeof(*w));
    fill_normal(w, model->n_decay, 0.02f, &state);
    if (model->config.tied) {
        memcpy(w + model->head_w, w + model->token_w,
               VOCAB * (size_t)model->config.hidden * sizeof(*w));
    }
    fill(w + model->norm_g, (size_t)model->config.hidden, 1.0f);
    for (int i = 0; i < model->n_parts; i++) {
        first_weights_of(model, &model->parts[i], w, &state);
    }
}

/* Takes a rank's own experts out of both matrices of all experts. */
static void take_experts(const struct model *model, int layer,
                         const struct model *whole, const float *all, float *w)
{
    const struct config *config = &model->config;
    const size_t one = (size_t)config->hidden * (size_t)config_expert(config);
    const size_t first = (size_t)config_first_expert(config) * one;
    const size_t n = (size_t)config_own_experts(config) * one;
    const struct moe_weights *own = &model->moe[layer];
    const struct moe_weights *from = &whole->moe[config_layer(config, layer)];

    memcpy(w + own->up_w, all + from->up_w + first, n * sizeof(*w));
    memcpy(w + own->down_w, all + from->down_w + first, n * sizeof(*w));
}

struct taking {
    const float *all;
    float *w;
};

static void take_run(void *user, size_t own, size_t at, size_t count)
{
    const struct taking *taking = user;

    memcpy(taking->w + own, taking->all + at, count * sizeof(*taking->w));
}

/* Takes a rank's own weights out of the model with all layers and experts. */
static void take_own(const struct model *model, const struct model *whole,
                     const float *all, float *w)
{
    struct taking taking = { all, w };

    model_each_run(model, whole, take_run, &taking);
    for (int i = 0; model->experts.count > 0 && i < model->n_parts; i++) {
        if (model->parts[i].kind == PART_MOE_EXPERTS) {
            take_experts(model, model->parts[i].layer, whole, all, w);
        }
    }
}

int model_first_weights(const struct model *model, float *w)
{
    struct config config = model->config;
    struct model whole;
    float *all;

    if (model->experts.count == 0 && config.share.all == 0) {
        make_first_weights(model, w);
        return 0;
    }
    config.ep = config.ep_rank = 0;
    config.layers = config_all_layers(&config);
    config.share = (struct share){ 0 };
    if (model_init(&whole, &config) != 0) {
        return -1;
    }
    all = malloc(whole.n * sizeof(*all));
    if (all != NULL) {
        make_first_weights(&whole, all);
        take_own(model, &whole, all, w);
    }
    free(all);
    model_free(&whole);
    return all != NULL ? 0 : -1;
}
