/*
 * sequence.h - the order in which tasks are issued.
 *
 * Pure functions of the tasks and their times, so ranks with equal times choose
 * equal sequences.  A sequence is a permutation of the tasks in which each task
 * comes after its predecessor (gh_task.after).  The tasks of a lane run in the
 * order of the sequence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_SEQUENCE_H
#define GH_SCHEDULE_SEQUENCE_H

#include "schedule/tasks.h"

/* The predicted duration of a sequence, in nanoseconds.  It assumes that the
 * host is ahead of the device and that the lanes do not slow each other. */
struct gh_forecast {
    double total;
    double lanes[2]; /* the sum of the tasks of each lane; by gh_lane */
};

/* The share of the communication that does not overlap with compute; 0 if there
 * is no communication. */
double gh_forecast_exposed(const struct gh_forecast *forecast);

/* Each of the functions below writes tasks->n indices.  The only error is
 * GH_ERR_NO_MEMORY. */

/* The backward with its weight gradients, then the forward. */
void gh_sequence_serial(const struct gh_tasks *tasks, uint32_t *sequence);
/* The fixed order: for each pair of layers, the exchanges of one microbatch
 * beside the compute of the other.  `early` puts the backward of the parts
 * before a dispatch ahead of the forward of the experts. */
void gh_sequence_fixed(const struct gh_tasks *tasks, bool early,
                       uint32_t *sequence);

/* How list scheduling chooses the next task. */
enum gh_list_tie {
    GH_TIE_LONGEST,  /* of the chain with the most time left */
    GH_TIE_FORWARD,  /* of the forward */
    GH_TIE_BACKWARD, /* of the backward */
    GH_TIE_COUNT
};
struct gh_list_rule {
    enum gh_list_tie tie; /* between tasks that could begin at the same time */
    double share; /* a weight gradient is put into a gap that is at least this
                     fraction of its own time */
};
gh_status gh_sequence_list(const struct gh_tasks *tasks,
                           const struct gh_list_rule *rule, uint32_t *sequence,
                           gh_error *err);

gh_status gh_sequence_forecast(const struct gh_tasks *tasks,
                               const uint32_t *sequence,
                               struct gh_forecast *forecast, gh_error *err);

/* The shortest of the fixed sequence and of the list schedules.  A list
 * schedule is chosen only if it is shorter than the fixed one by more than the
 * fraction GH_LEAST_GAIN. */
#define GH_LEAST_GAIN 0.01
gh_status gh_sequence_best(const struct gh_tasks *tasks, bool early,
                           uint32_t *sequence, struct gh_forecast *best,
                           struct gh_forecast *fixed, gh_error *err);

#endif
