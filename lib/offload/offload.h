/*
 * offload.h - activations on their way to the host's memory and back.
 *
 * lib/capture is the caller; nothing here knows what a graph holds besides
 * the nodes that it asks for.  A pass that runs eagerly calls save, commit,
 * load and release, and each does what it says.  A pass that is recorded
 * calls the same, which then put event nodes into the graph and write down
 * what was asked for; gh_offload_before() and gh_offload_after() do that around
 * every launch of the graph.
 *
 *     forward   wait read ── write ── record filled        (in the graph)
 *     out                                └─ copy ─ record read, copied
 *     back      wait copied, read ─ copy ─ record filled, copied
 *     backward                               └─ wait filled ── read ── record read
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_OFFLOAD_H
#define GH_OFFLOAD_OFFLOAD_H

#include "offload/decide/declare.h"
#include "offload/decide/exchanges.h"
#include "offload/groups/state.h"
#include "offload/move/calls.h"

gh_status gh_offload_create(const struct gh_offload_options *options,
                            const struct gh_plan *plan, struct gh_device *dev,
                            struct gh_memory *memory, const struct gh_log *log,
                            struct gh_offload **offload_p, gh_error *err);
/* Waits until all copies have ended, and ends every loan. */
void gh_offload_rest(struct gh_offload *offload);
/* Rests.  NULL is allowed. */
void gh_offload_destroy(struct gh_offload *offload);

/* The pass of that number is given up: what it has saved is taken back,
 * and what it has loaded may be loaded again. */
void gh_offload_cancel(struct gh_offload *offload, uint64_t pass,
                       bool forward);

/* Whether offload still learns from the step.  Nothing may be recorded until it
 * has. */
bool gh_offload_is_profiling(const struct gh_offload *offload,
                             uint64_t steps_ended);

/* The steps of the longest profile that the options allow. */
uint64_t gh_offload_profile_steps(const struct gh_offload *offload);
/* Whether the ranks agree in this step on how long exchanges took
 * (exchanges.h): the same on all of them, also on one that could not measure. */
bool gh_offload_asks_ranks(const struct gh_offload *offload);

/* With options.apart, what is copied out next begins after what is on the
 * stream. */
void gh_offload_behind(struct gh_offload *offload, void *stream);

/* Issues the commits that are queued. */
gh_status gh_offload_flush(struct gh_offload *offload, gh_error *err);
/* The step is over: the first one decides what goes. */
gh_status gh_offload_end_step(struct gh_offload *offload, gh_error *err);

/* GH_ERR_STATE with the first group that is saved and not released. */
gh_status gh_offload_check_idle(const struct gh_offload *offload,
                                gh_error *err);

/* The bytes that will be kept on the device once all groups have been saved as
 * was decided.  The profile has ended. */
uint64_t gh_offload_will_keep(const struct gh_offload *offload);
void gh_offload_count(const struct gh_offload *offload,
                      gh_offload_stats *stats);

#endif
