/*
 * optimizer.h - one step of AdamW over all weights.
 *
 * Its step counter and learning rate are on the device, so that a step can be
 * captured once and launched any number of times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OPTIMIZER_H
#define ENGINE_OPTIMIZER_H

#include "model/model.h"

/* The learning rate rises to `lr` in `warmup` steps. */
void optimizer_step(const struct model *model, const struct queue *queue,
                    double lr, int warmup);

#endif
