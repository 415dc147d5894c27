/*
 * passes.h - runs a microbatch's parts through the library's hooks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASSES_H
#define ENGINE_PASSES_H

#include "step/host.h"

/* Prepares a microbatch for its first forward pass.  Returns 0, or -1:
 * host_error(). */
int passes_begin(struct host *host, int microbatch);
/* Runs the segments of one node, on its stream.  Returns 0, or -1: host_error()
 * or dev->error. */
int passes_node(struct host *host, const gh_overlap_node *node);
/* Runs all parts of a microbatch forward.  Fills
 * trainer->chunk->flights[microbatch]. Returns 0, or -1: host_error(). */
int passes_forward(struct host *host, int microbatch);
/* Runs all parts backward.  *dx_p is the gradient of what the first part read.
 * Returns as passes_forward() does. */
int passes_backward(struct host *host, int microbatch, const float **dx_p);
/* Makes the gradients of the weights, on their own stream.  Only if they are
 * delayed. */
int passes_wgrad(struct host *host, int microbatch);

#endif
