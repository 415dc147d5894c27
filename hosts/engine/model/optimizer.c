/*
 * optimizer.c - see optimizer.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/optimizer.h"

#define BETA1 0.9f
#define BETA2 0.99f
#define EPSILON 1e-8f
#define DECAY 0.1f

void optimizer_step(const struct model *model, const struct queue *queue,
                    double lr, int warmup)
{
    LAUNCH(queue, optimizer_begin, optimizer_begin_args, 1,
           .state = model->state, .lr = (float)lr, .beta1 = BETA1,
           .beta2 = BETA2, .warmup = warmup);
    LAUNCH(queue, adamw, adamw_args, blocks_of(model->n, adamw_threads),
           .w = model->w, .g = model->g, .m = model->m, .v = model->v,
           .state = model->state, .n = (int)model->n,
           .n_decay = (int)model->n_decay, .beta1 = BETA1, .beta2 = BETA2,
           .epsilon = EPSILON, .decay = DECAY);
}
