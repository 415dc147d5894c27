/*
 * own_script.h - a pass that is recorded, with groups of the host's own.
 *
 * Called by script.c, for the steps of its script.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_OWN_SCRIPT_H
#define GH_OFFLOAD_OWN_SCRIPT_H

#include "offload/offload.h"

/* What the graph knows of a group that it saves.  What stays where the host
 * has it needs no memory of the library's. */
gh_status gh_own_record_save(const struct gh_offload *offload,
                             const gh_offload_group *wanted,
                             struct gh_offload_step *step, gh_error *err);
/* And the loan of its object, once the step is part of the script. */
gh_status gh_own_record_lend(struct gh_offload *offload,
                             const struct gh_offload_at *at,
                             const gh_offload_group *wanted,
                             const struct gh_offload_step *step, gh_error *err);
/* The commit copies the group in the graph, and the host has its memory again,
 * but for what stays in it.  Of a group that is the library's: nothing. */
gh_status gh_own_record_commit(struct gh_offload *offload,
                               const struct gh_offload_at *at,
                               const struct gh_offload_script *script,
                               const struct gh_offload_step *step,
                               gh_error *err);
/* Where the graph reads what stays: where a graph has saved it, or in memory
 * that each launch copies it to. */
gh_status gh_own_record_load(struct gh_offload *offload,
                             const gh_offload_group *wanted,
                             struct gh_offload_step *step, gh_error *err);

#endif
