/*
 * dispatch.h - tokens on their way to the experts, and back, both ways.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_DISPATCH_H
#define ENGINE_DISPATCH_H

#include "model/parts.h"
#include "model/saved.h"

/* From the router's rows to the rows of this rank's experts, and from what
 * they have made to one row for every choice. */
void dispatch_forward(const struct work *work,
                      const struct moe_buffers *buffers);
void combine_forward(const struct work *work,
                     const struct moe_buffers *buffers);

/* Gradients go the same ways in the other direction, and read nothing but
 * where rows are. */
void combine_backward(const struct work *work,
                      const struct moe_buffers *buffers);
void dispatch_backward(const struct work *work,
                       const struct moe_buffers *buffers);

/* Where ranks divide the experts: rows that came of a rank for an expert.  The
 * host knows from the dispatch on. */
int dispatch_rows(const struct work *work, const struct moe_buffers *buffers,
                  int rank, int expert);
/* Rows of all this rank's experts; where the device counts, room for them. */
int dispatch_all_rows(const struct work *work,
                      const struct moe_buffers *buffers);
/* What is offloaded is copied with all the room that it has: clears what no
 * row has come to. */
void dispatch_clear(const struct work *work, const struct moe_buffers *buffers,
                    enum saved_module module, float *x, int cols);

#endif
