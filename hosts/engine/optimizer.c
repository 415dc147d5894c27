/*
 * optimizer.c - AdamW, with its step counter and learning rate on the device
 * so that a step can be captured once and launched for ever.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "train.h"

#define BETA1 0.9f
#define BETA2 0.99f
#define EPSILON 1e-8f
#define DECAY 0.1f

void optimizer_step(const struct trainer *trainer)
{
    const struct model *model = &trainer->model;
    const struct queue queue = {
        .dev = trainer->dev,
        .stream = trainer->streams[0],
    };

    LAUNCH(&queue, optimizer_begin, optimizer_begin_args, 1,
           .state = model->state, .lr = (float)trainer->options->lr,
           .beta1 = BETA1, .beta2 = BETA2, .warmup = trainer->options->warmup);
    LAUNCH(&queue, adamw, adamw_args, blocks_of(model->n, adamw_threads),
           .w = model->w, .g = model->g, .m = model->m, .v = model->v,
           .state = model->state, .n = (int)model->n,
           .n_decay = (int)model->n_decay, .beta1 = BETA1, .beta2 = BETA2,
           .epsilon = EPSILON, .decay = DECAY);
}
