/*
 * simulate.h - a step as it would be with some of its groups on their way.
 *
 * The compute goes from mark to mark, as the profile has them.  Two streams of
 * copies run beside it, each in order: a copy out begins at its commit, one
 * back as soon as it may be issued and there is a buffer.  A save waits for a
 * buffer, a load for its copy.  lib/plan/policy.c is the caller.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_SIMULATE_H
#define GH_PLAN_SIMULATE_H

#include "plan/policy.h"

struct gh_simulation;

/* NULL: no memory.  Times are known: gh_simulation_can(). */
struct gh_simulation *gh_simulation_create(const struct gh_policy *policy,
                                           const struct gh_profile *profile);
void gh_simulation_free(struct gh_simulation *simulation);
bool gh_simulation_can(const struct gh_profile *profile);

/* With the groups that go by their `fate`, and so many brought back ahead. */
void gh_simulate(struct gh_simulation *simulation, uint32_t prefetch,
                 struct gh_forecast *forecast);
/* How long the last simulation has waited for a group. */
double gh_simulated_stall(const struct gh_simulation *simulation,
                          uint32_t group);

#endif
