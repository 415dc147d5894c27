/*
 * tasks.h - the nodes of a forward and a backward chunk, with dependencies.
 *
 * Pure functions of the plan.  The tasks of one direction are consecutive:
 * first the backward, from the last layer to the first; then the weight
 * gradients, in the order of the backward; then the forward, from the first
 * layer to the last.  The forward and the backward are chains, in which a task
 * depends on the one before it; a weight gradient depends on its backward.
 * The forward and the backward do not depend on each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_TASKS_H
#define GH_SCHEDULE_TASKS_H

#include "plan/plan.h"

#define GH_NO_TASK UINT32_MAX
#define GH_NO_CHUNK UINT32_MAX
#define GH_TASK_KINDS 3 /* by gh_direction */

/* The role of a node in its layer, as the fixed order distinguishes it. */
enum gh_role {
    GH_ROLE_BEFORE,   /* before the dispatch; or the first node of a layer
                         without exchanges */
    GH_ROLE_DISPATCH, /* the first exchange */
    GH_ROLE_EXPERTS,  /* between the exchanges; or all further nodes of a layer
                         without exchanges */
    GH_ROLE_COMBINE,  /* the second exchange */
    GH_ROLE_AFTER     /* after the second exchange */
};

struct gh_task {
    gh_direction direction;
    uint32_t layer;
    uint32_t at; /* number of layers of its chain before this one */
    uint32_t node;
    enum gh_role role;
    gh_lane lane;
    gh_part first_part, last_part;
    uint32_t first_segment, n_segments;
    uint32_t after; /* the task that it depends on; GH_NO_TASK: none */
    uint32_t cell;  /* its index in a table of times, which has GH_TASK_KINDS
                       cells for each node of the model */
    double ns;      /* its duration; 0: not known */
};

struct gh_tasks {
    struct gh_task *all;
    uint32_t n;
    uint32_t first[GH_TASK_KINDS], count[GH_TASK_KINDS];
    uint32_t layers[2]; /* of the forward, of the backward */
};

/* Either chunk may be GH_NO_CHUNK.  GH_ERR_NO_MEMORY. */
gh_status gh_tasks_make(const struct gh_plan *plan, uint32_t forward,
                        uint32_t backward, struct gh_tasks *tasks,
                        gh_error *err);
void gh_tasks_free(struct gh_tasks *tasks);

/* Returns an index, or GH_NO_TASK. */
uint32_t gh_tasks_find(const struct gh_tasks *tasks, gh_direction direction,
                       uint32_t layer, uint32_t node);

/* The number of cells of a table of times. */
uint32_t gh_tasks_cells(const struct gh_plan *plan);

#endif
