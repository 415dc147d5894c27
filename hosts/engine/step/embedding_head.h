/*
 * embedding_head.h - what a microbatch has besides its parts: the embedding
 * before them, and the head with the loss after them, where these do not run
 * with the parts (passes.c).
 *
 * All of it runs on the microbatch's stream.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_EMBEDDING_HEAD_H
#define ENGINE_EMBEDDING_HEAD_H

#include "step/trainer.h"

#include "model/parts.h"

/* The work of a microbatch that does not go through the library. */
struct work work_of(const struct trainer *trainer, int microbatch);

/* Sets the scale of the gradients of a step of `count` microbatches, on stream
 * 0. */
void embedding_head_begin_step(const struct trainer *trainer, int count);

void embedding_head_before_forward(const struct trainer *trainer,
                                   int microbatch);
void embedding_head_after_forward(const struct trainer *trainer,
                                  int microbatch);
void embedding_head_before_backward(const struct trainer *trainer,
                                    int microbatch);
/* dx is the gradient of what the first part read. */
void embedding_head_after_backward(const struct trainer *trainer,
                                   int microbatch, const float *dx);

#endif
