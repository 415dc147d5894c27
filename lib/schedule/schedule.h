/*
 * schedule.h - walks a forward and a backward chunk together.
 *
 * A session under EP overlap has one.  What is to be issued for a pair of
 * chunks is made at its first run and kept; a run then goes through it: wait,
 * call the host, record.  lib/abi has checked the arguments.
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
};

/* `plan`, `dev`, which may be NULL, `capture` and the log outlive it, but for
 * gh_schedule_destroy(), which `capture` goes before: it knows the stream. */
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
/* All of it but its struct_size. */
void gh_schedule_stats(const struct gh_schedule *schedule,
                       gh_overlap_stats *stats);

#endif
