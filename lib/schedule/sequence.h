/*
 * sequence.h - in which order tasks are issued.
 *
 * Pure functions of the tasks and their times, so that ranks with the same
 * times choose the same.  A sequence is a permutation of the tasks in which
 * each comes after the one that it follows; tasks of one lane run in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_SEQUENCE_H
#define GH_SCHEDULE_SEQUENCE_H

#include "schedule/tasks.h"

/* What a sequence comes to, in nanoseconds, where the host is ahead of the
 * device and the lanes do not slow each other. */
struct gh_forecast {
    double total;
    double lanes[2]; /* the sums of each; by gh_lane */
};

/* The share of the communication that no compute hides; 0 without any. */
double gh_forecast_exposed(const struct gh_forecast *forecast);

/* Each writes tasks->n indices; what fails is GH_ERR_NO_MEMORY. */

/* The backward, its weight gradients where they are left, then the forward. */
void gh_sequence_serial(const struct gh_tasks *tasks, uint32_t *sequence);
/* The published order: layer by layer, what is exchanged for one microbatch
 * beside what is computed for the other.  `early`: the backward of what comes
 * before a dispatch ahead of the forward of the experts. */
void gh_sequence_fixed(const struct gh_tasks *tasks, bool early,
                       uint32_t *sequence);

/* How a list schedule decides. */
enum gh_list_tie {
    GH_TIE_LONGEST,  /* the chain that has the most left */
    GH_TIE_FORWARD,  /* the forward first */
    GH_TIE_BACKWARD, /* the backward first */
    GH_TIE_COUNT
};
struct gh_list_rule {
    enum gh_list_tie tie; /* of tasks that could begin at the same time */
    double share; /* a weight gradient fills a gap of so much of its time */
};
gh_status gh_sequence_list(const struct gh_tasks *tasks,
                           const struct gh_list_rule *rule, uint32_t *sequence,
                           gh_error *err);

gh_status gh_sequence_forecast(const struct gh_tasks *tasks,
                               const uint32_t *sequence,
                               struct gh_forecast *forecast, gh_error *err);

/* The best of the fixed one and of the lists; the fixed one unless another is
 * shorter by more than GH_LEAST_GAIN of it. */
#define GH_LEAST_GAIN 0.01
gh_status gh_sequence_best(const struct gh_tasks *tasks, bool early,
                           uint32_t *sequence, struct gh_forecast *best,
                           struct gh_forecast *fixed, gh_error *err);

#endif
