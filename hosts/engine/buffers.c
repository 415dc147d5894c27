/*
 * buffers.c - cuts one allocation into a set's buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "buffers.h"

#include <stdlib.h>
#include <string.h>

/* Walked twice: with no base it only measures. */
struct cutter {
    char *base;
    size_t used;
};

static float *cut(struct cutter *cutter, size_t count)
{
    float *address = NULL;

    if (cutter->base != NULL) {
        address = (float *)(void *)(cutter->base + cutter->used);
    }
    cutter->used += (count * sizeof(float) + 255) / 256 * 256;
    return address;
}

static void cut_layer(struct cutter *cutter, const struct config *config,
                      struct attn_buffers *attn, struct mlp_buffers *mlp)
{
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    attn->norm = cut(cutter, rows * c);
    attn->mean = cut(cutter, rows);
    attn->rstd = cut(cutter, rows);
    attn->qkv = cut(cutter, rows * 3 * c);
    attn->probs =
        cut(cutter, rows * (size_t)config->heads * (size_t)config->seq);
    attn->context = cut(cutter, rows * c);
    attn->out = cut(cutter, rows * c);
    attn->d_in = cut(cutter, rows * c);

    mlp->norm = cut(cutter, rows * c);
    mlp->mean = cut(cutter, rows);
    mlp->rstd = cut(cutter, rows);
    mlp->wide = cut(cutter, rows * WIDEN * c);
    mlp->gelu = cut(cutter, rows * WIDEN * c);
    mlp->out = cut(cutter, rows * c);
    mlp->d_in = cut(cutter, rows * c);
}

static void cut_all(struct set *set, const struct config *config,
                    struct cutter *cutter)
{
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    for (int i = 0; i < config->layers; i++) {
        cut_layer(cutter, config, &set->attn[i], &set->mlp[i]);
    }
    set->norm = cut(cutter, rows * c);
    set->mean = cut(cutter, rows);
    set->rstd = cut(cutter, rows);
    set->logits = cut(cutter, rows * VOCAB);
    set->losses = cut(cutter, rows);

    set->d_rows = cut(cutter, rows * c);
    set->d_wide = cut(cutter, rows * WIDEN * c);
    set->d_probs =
        cut(cutter, rows * (size_t)config->heads * (size_t)config->seq);
}

int set_init(struct set *set, const struct config *config, struct device *dev)
{
    struct cutter cutter = { 0 };

    memset(set, 0, sizeof(*set));
    set->dev = dev;
    set->attn = calloc((size_t)config->layers, sizeof(*set->attn));
    set->mlp = calloc((size_t)config->layers, sizeof(*set->mlp));
    if (set->attn == NULL || set->mlp == NULL) {
        set_free(set);
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }

    cut_all(set, config, &cutter);
    set->memory = device_alloc(dev, cutter.used);
    if (set->memory == NULL) {
        set_free(set);
        return -1;
    }
    cutter = (struct cutter){ .base = set->memory };
    cut_all(set, config, &cutter);
    return 0;
}

void set_free(struct set *set)
{
    if (set->dev != NULL) {
        device_free(set->dev, set->memory);
    }
    free(set->attn);
    free(set->mlp);
    memset(set, 0, sizeof(*set));
}
