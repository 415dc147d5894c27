/*
 * plans.h - plans of a few layers, for tests of lib/schedule.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UNIT_SCHEDULE_PLANS_H
#define UNIT_SCHEDULE_PLANS_H

#include "plan/plan.h"

#include <stdbool.h>

/* Each is a point.  Layers by letter, "|" between chunks: m of experts, d
 * dense, s Mamba. */
bool plan_of(const char *layers, uint32_t scope, struct gh_plan *plan);
/* Of one layer, whose shared experts are joined where the combine ends. */
bool plan_of_shared_experts(struct gh_plan *plan);

#endif
