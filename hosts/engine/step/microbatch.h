/*
 * microbatch.h - a microbatch's way through the chunk that runs.
 *
 * Each call returns 0, or -1 with a text in dev->error or in the host's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MICROBATCH_H
#define ENGINE_MICROBATCH_H

#include "step/trainer.h"

/* Issues its forward, with the embedding and the head where the chunk has
 * them. */
int microbatch_forward(struct trainer *trainer, int microbatch);
/* Issues its backward.  If gradients of weights are delayed, those of the parts
 * are left out. */
int microbatch_backward(struct trainer *trainer, int microbatch);
/* Issues the delayed gradients of weights. */
int microbatch_wgrad(struct trainer *trainer, int microbatch);

#endif
