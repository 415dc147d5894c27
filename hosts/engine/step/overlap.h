/*
 * overlap.h - one step with hidden exchanges of tokens: the forward of one
 * microbatch runs together with the backward of another, by gh_overlap_run().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OVERLAP_H
#define ENGINE_OVERLAP_H

#include "step/host.h"

/* Issues all forwards and backwards of `count` microbatches.  Gradients add up
 * in the order of the microbatches.  Returns 0, or -1: host_error() or
 * dev->error. */
int overlap_step(struct trainer *trainer, int count);

/* Counts of all runs, and times of the last run of two chunks; struct_size is 0
 * if nothing overlaps.  Returns 0, or -1: host_error(). */
int overlap_stats(struct host *host, gh_overlap_stats *stats);

#endif
