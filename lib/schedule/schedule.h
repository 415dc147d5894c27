/*
 * schedule.h - walks a forward and a backward chunk together.
 *
 * Each session with EP overlap has one schedule.  The first run of a pair of
 * chunks computes the order of its nodes and keeps it.  A run then walks that
 * order: for each node it waits, calls the host and records an event.  lib/abi
 * has checked the arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_SCHEDULE_H
#define GH_SCHEDULE_SCHEDULE_H

#include <graphhooks/overlap.h>

#include "base/log.h"
#include "plan/plan.h"

struct gh_capture;
struct gh_device;
struct gh_schedule;

struct gh_schedule_options {
    gh_overlap_order order;
    uint64_t warmup_steps;
    const struct gh_log *log;
    struct gh_gate *gate; /* that gh_overlap_pair.agree passes */
};

/* `dev` may be NULL.  `plan`, `dev` and the log outlive the schedule.
 * `capture` is destroyed before it, as it knows the schedule's stream. */
gh_status gh_schedule_create(const struct gh_plan *plan, struct gh_device *dev,
                             struct gh_capture *capture,
                             const struct gh_schedule_options *options,
                             struct gh_schedule **schedule_p, gh_error *err);
/* NULL is allowed. */
void gh_schedule_destroy(struct gh_schedule *schedule);

/* `pair` is a whole struct of this release. */
gh_status gh_schedule_run(struct gh_schedule *schedule,
                          const gh_overlap_pair *pair, gh_error *err);
/* Whether a run is under way: the call comes from a node. */
bool gh_schedule_is_running(const struct gh_schedule *schedule);
/* Writes every field of `stats` except struct_size. */
void gh_schedule_stats(const struct gh_schedule *schedule,
                       gh_overlap_stats *stats);

#endif
