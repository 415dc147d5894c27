/*
 * model.c - lays out the weights, makes their first values, hashes the last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t take(size_t *next, size_t count)
{
    size_t first = *next;

    *next += count;
    return first;
}

static void lay_out_matrices(struct model *model)
{
    const struct config *config = &model->config;
    const size_t c = (size_t)config->hidden;
    size_t next = 0;

    model->token_w = take(&next, VOCAB * c);
    model->position_w = take(&next, (size_t)config->seq * c);
    model->head_w = take(&next, c * VOCAB);
    for (int i = 0; i < config->layers; i++) {
        struct attn_weights *attn = &model->attn[i];
        struct mlp_weights *mlp = &model->mlp[i];

        attn->matrices.first = next;
        attn->qkv_w = take(&next, c * 3 * c);
        attn->out_w = take(&next, c * c);
        attn->matrices.count = next - attn->matrices.first;

        mlp->matrices.first = next;
        mlp->up_w = take(&next, c * WIDEN * c);
        mlp->down_w = take(&next, WIDEN * c * c);
        mlp->matrices.count = next - mlp->matrices.first;
    }
    model->n_decay = next;
}

static void lay_out_vectors(struct model *model)
{
    const size_t c = (size_t)model->config.hidden;
    size_t next = model->n_decay;

    model->norm_g = take(&next, c);
    model->norm_b = take(&next, c);
    for (int i = 0; i < model->config.layers; i++) {
        struct attn_weights *attn = &model->attn[i];
        struct mlp_weights *mlp = &model->mlp[i];

        attn->vectors.first = next;
        attn->norm_g = take(&next, c);
        attn->norm_b = take(&next, c);
        attn->qkv_b = take(&next, 3 * c);
        attn->out_b = take(&next, c);
        attn->vectors.count = next - attn->vectors.first;

        mlp->vectors.first = next;
        mlp->norm_g = take(&next, c);
        mlp->norm_b = take(&next, c);
        mlp->up_b = take(&next, WIDEN * c);
        mlp->down_b = take(&next, c);
        mlp->vectors.count = next - mlp->vectors.first;
    }
    model->n = next;
}

int model_init(struct model *model, const struct config *config)
{
    const size_t layers = (size_t)config->layers;

    memset(model, 0, sizeof(*model));
    model->config = *config;
    model->attn = calloc(layers, sizeof(*model->attn));
    model->mlp = calloc(layers, sizeof(*model->mlp));
    if (model->attn == NULL || model->mlp == NULL) {
        model_free(model);
        return -1;
    }
    lay_out_matrices(model);
    lay_out_vectors(model);
    return 0;
}

/* splitmix64: small, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Near enough to normal: twelve uniform numbers less six.  No libm, so that
 * the first weights are the same bits on every machine. */
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

static void fill_ones(float *w, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        w[i] = 1.0f;
    }
}

void model_first_weights(const struct model *model, float *w)
{
    const size_t c = (size_t)model->config.hidden;
    /* What adds to the residual stream starts smaller in deeper models. */
    const float residual = 0.02f / sqrtf(2.0f * (float)model->config.layers);
    uint64_t state = model->config.seed;

    memset(w, 0, model->n * sizeof(*w));
    fill_normal(w, model->n_decay, 0.02f, &state);
    fill_ones(w + model->norm_g, c);
    for (int i = 0; i < model->config.layers; i++) {
        fill_ones(w + model->attn[i].norm_g, c);
        fill_ones(w + model->mlp[i].norm_g, c);
        fill_normal(w + model->attn[i].out_w, c * c, residual, &state);
        fill_normal(w + model->mlp[i].down_w, WIDEN * c * c, residual, &state);
    }
}

int model_upload(struct model *model, struct device *dev)
{
    const size_t bytes = model->n * sizeof(float);
    float *first = malloc(bytes);

    model->dev = dev;
    if (first == NULL) {
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    model_first_weights(model, first);

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
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

void model_free(struct model *model)
{
    if (model->dev != NULL) {
        device_free(model->dev, model->w);
        device_free(model->dev, model->g);
        device_free(model->dev, model->m);
        device_free(model->dev, model->v);
        device_free(model->dev, model->state);
    }
    free(model->attn);
    free(model->mlp);
    memset(model, 0, sizeof(*model));
}

int model_hash(struct model *model, uint64_t *hash_p)
{
    const size_t bytes = model->n * sizeof(float);
    unsigned char *copy = malloc(bytes);
    uint64_t hash = 0xcbf29ce484222325u;
    int result;

    if (copy == NULL) {
        return device_check(model->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    result = DEVICE_CALL(model->dev, cuMemcpyDtoH, copy,
                         device_address(model->w), bytes);
    for (size_t i = 0; result == 0 && i < bytes; i++) {
        hash = (hash ^ copy[i]) * 0x100000001b3u;
    }
    free(copy);
    if (result == 0) {
        *hash_p = hash;
    }
    return result;
}
