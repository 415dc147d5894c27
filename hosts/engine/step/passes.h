/*
 * passes.h - a microbatch's parts, through the library's hooks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASSES_H
#define ENGINE_PASSES_H

#include "step/host.h"

/* What a microbatch needs before its first forward pass.  0, or -1:
 * host_error(). */
int passes_begin(struct host *host, int microbatch);
/* The segments of one node, on its stream.  0, or -1: host_error() or
 * dev->error. */
int passes_node(struct host *host, const gh_overlap_node *node);
/* All parts of a microbatch.  Fills trainer->flights[microbatch].
 * 0, or -1: host_error(). */
int passes_forward(struct host *host, int microbatch);
/* As above; *dx_p is the gradient of what the first part read. */
int passes_backward(struct host *host, int microbatch, const float **dx_p);
/* The gradients of its weights, on their own stream: only when they are
 * delayed. */
int passes_wgrad(struct host *host, int microbatch);

#endif
