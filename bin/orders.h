/*
 * orders.h - in which order gh_overlap_run will issue nodes, before anything
 * has run.
 *
 * The tasks and the orders are those of lib/schedule.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_ORDERS_H
#define BIN_ORDERS_H

#include "plan/plan.h"

/* How long the nodes of a layer take, for one microbatch; by gh_direction.
 * 0: not said. */
struct node_times {
    uint32_t n; /* nodes; 0: nothing is known */
    double us[GH_FAMILY_NODES][3];
};

/* Every layer has no times, or one entry for each of its nodes.  `times` has a
 * pointer for each layer. */
gh_status orders_check(const struct gh_plan *plan,
                       const struct node_times *const *times, gh_error *err);

/* On standard output; nothing without EP overlap, or without experts. */
void orders_print(const struct gh_plan *plan,
                  const struct node_times *const *times);
/* The same as a member of an object that is begun, with a comma behind it. */
void orders_print_json(const struct gh_plan *plan,
                       const struct node_times *const *times);

#endif
