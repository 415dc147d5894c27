/*
 * simulate.h - how long a step would take if some of its groups went to the
 * host.
 *
 * The compute goes from mark to mark, as in the profile.  Two streams of
 * copies run beside it, each in order.  A copy out begins at its commit; a
 * copy back begins as soon as it may be issued and has a buffer.  A save waits
 * for a buffer, and a load for its copy.  lib/plan/policy.c is the caller.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_SIMULATE_H
#define GH_PLAN_SIMULATE_H

#include "plan/policy.h"

struct gh_simulation;

/* Returns NULL if there is no memory.  gh_simulation_can() must be true, so
 * that all times are known. */
struct gh_simulation *gh_simulation_create(const struct gh_policy *policy,
                                           const struct gh_profile *profile);
void gh_simulation_free(struct gh_simulation *simulation);
bool gh_simulation_can(const struct gh_profile *profile);

/* Simulates a step in which the groups go as their `fate` says, and so many
 * copies come back ahead. */
void gh_simulate(struct gh_simulation *simulation, uint32_t prefetch,
                 struct gh_forecast *forecast);
/* How long the last simulation waited for a group. */
double gh_simulated_stall(const struct gh_simulation *simulation,
                          uint32_t group);
/* The part of it at saves, for a buffer. */
double gh_simulated_save_stall(const struct gh_simulation *simulation,
                               uint32_t group);

#endif
