/*
 * report.h - what a person reads of offload in the log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_REPORT_H
#define GH_OFFLOAD_REPORT_H

#include "base/path.h"
#include "offload/groups/state.h"

/* The groups are in the order of the profile, and decided. */
GH_COLD void gh_report_decision(struct gh_offload *offload,
                                const struct gh_policy *policy,
                                const struct gh_profile *profile);
/* Writes one line when the session closes. */
void gh_report_end(const struct gh_offload *offload,
                   const gh_offload_stats *stats);

/* Names the group that is waited for longest, `when`, and what would help. */
void gh_report_wait(const struct gh_offload *offload,
                    const struct gh_group *group, double ns, double save_ns,
                    const char *when);

#endif
