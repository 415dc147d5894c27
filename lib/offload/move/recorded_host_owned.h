/*
 * recorded_host_owned.h - a pass that is recorded, with groups of the host's
 * own.
 *
 * Called by script.c, for the steps of its script.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_RECORDED_HOST_OWNED_H
#define GH_OFFLOAD_RECORDED_HOST_OWNED_H

#include "offload/groups/state.h"

/* Sets what the graph knows of a group that it saves.  Tensors that stay where
 * the host has them need no memory of the library's. */
gh_status gh_host_owned_record_save(const struct gh_offload *offload,
                                    const gh_offload_group *wanted,
                                    struct gh_offload_step *step,
                                    gh_error *err);
/* Begins the loan of its object.  The step is part of the script already. */
gh_status gh_host_owned_record_lend(struct gh_offload *offload,
                                    const struct gh_offload_at *at,
                                    const gh_offload_group *wanted,
                                    const struct gh_offload_step *step,
                                    gh_error *err);
/* Records the copy of the group into the graph.  The host then has its memory
 * again, unless a part stays in it.  Does nothing for a group in memory of the
 * library's. */
gh_status gh_host_owned_record_commit(struct gh_offload *offload,
                                      const struct gh_offload_at *at,
                                      const struct gh_offload_script *script,
                                      const struct gh_offload_step *step,
                                      gh_error *err);
/* Settles where the graph reads what stays: where a graph has saved it, or in
 * memory to which each launch copies it. */
gh_status gh_host_owned_record_load(struct gh_offload *offload,
                                    const gh_offload_group *wanted,
                                    struct gh_offload_step *step,
                                    gh_error *err);

#endif
