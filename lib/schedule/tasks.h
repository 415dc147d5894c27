/*
 * tasks.h - the nodes of a forward and a backward chunk, and what each of them
 * follows.
 *
 * Pure functions of the plan.  Tasks of one direction are in a row: those of
 * the backward from the last layer to the first, the weight gradients as the
 * backward comes to them, and those of the forward from the first layer to the
 * last.  A chain is linear, and between the two there is no dependency.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_TASKS_H
#define GH_SCHEDULE_TASKS_H

#include "plan/plan.h"

#define GH_NO_TASK UINT32_MAX
#define GH_NO_CHUNK UINT32_MAX
#define GH_TASK_KINDS 3 /* by gh_direction */

/* What a node is in its layer, as the fixed order knows it. */
enum gh_role {
    GH_ROLE_BEFORE,   /* the dispatch; of a layer without one its first node */
    GH_ROLE_DISPATCH, /* the first exchange */
    GH_ROLE_EXPERTS,  /* up to the second; of a layer without, all the rest */
    GH_ROLE_COMBINE,  /* the second */
    GH_ROLE_AFTER     /* what is left */
};

struct gh_task {
    gh_direction direction;
    uint32_t layer;
    uint32_t at; /* how many layers of its chain come before */
    uint32_t node;
    enum gh_role role;
    gh_lane lane;
    gh_part first_part, last_part;
    uint32_t first_segment, n_segments;
    uint32_t after; /* the task that it follows; GH_NO_TASK: none */
    uint32_t cell;  /* of a table of times, GH_TASK_KINDS for each node of the
                       model */
    double ns;      /* how long it takes; 0: not known */
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

/* GH_NO_TASK: there is none. */
uint32_t gh_tasks_find(const struct gh_tasks *tasks, gh_direction direction,
                       uint32_t layer, uint32_t node);

/* The cells of all nodes of the model. */
uint32_t gh_tasks_cells(const struct gh_plan *plan);

#endif
