/*
 * ends.h - what a microbatch has besides its parts: the embedding before them,
 * and the head with the loss behind them.
 *
 * All of it is on the microbatch's stream.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_ENDS_H
#define ENGINE_ENDS_H

#include "step/trainer.h"

#include "model/parts.h"

/* For any work on a microbatch that no library has a hand in. */
struct work work_of(const struct trainer *trainer, int microbatch);

void ends_before_forward(const struct trainer *trainer, int microbatch);
/* Of `count` microbatches in the step. */
void ends_after_forward(const struct trainer *trainer, int microbatch,
                        int count);
void ends_before_backward(const struct trainer *trainer, int microbatch);
/* dx: the gradient of what the first part has read. */
void ends_after_backward(const struct trainer *trainer, int microbatch,
                         const float *dx);

#endif
