/*
 * dispatch.h - sends tokens to the experts and back, forward and backward.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_DISPATCH_H
#define ENGINE_DISPATCH_H

#include "model/parts.h"
#include "model/saved.h"

/* The first goes from the router's rows to the rows of this rank's experts.
 * The second goes from what the experts made to one row for every choice. */
void dispatch_forward(const struct work *work,
                      const struct moe_buffers *buffers);
void combine_forward(const struct work *work,
                     const struct moe_buffers *buffers);

/* Gradients go the same ways in the other direction.  Of the forward they read
 * only where rows are. */
void combine_backward(const struct work *work,
                      const struct moe_buffers *buffers);
void dispatch_backward(const struct work *work,
                       const struct moe_buffers *buffers);

/* If ranks divide the experts: how many rows came from a rank for an expert.
 * The host knows it after the dispatch. */
int dispatch_rows(const struct work *work, const struct moe_buffers *buffers,
                  int rank, int expert);
/* Rows of all this rank's experts.  If only the device counts them, it is the
 * room for them. */
int dispatch_all_rows(const struct work *work,
                      const struct moe_buffers *buffers);
/* Clears the room that no row has come to, because offload copies all of it. */
void dispatch_clear(const struct work *work, const struct moe_buffers *buffers,
                    enum saved_module module, float *x, int cols);

#endif
