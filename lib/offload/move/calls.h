/*
 * calls.h - the calls of a pass that offloads, and those around a launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_CALLS_H
#define GH_OFFLOAD_CALLS_H

#include "offload/groups/state.h"

/* What the host asks for a group, with the device's context.  Of a commit or a
 * release the layer and the module are read alone. */
typedef gh_status gh_offload_eager_fn(struct gh_offload *offload,
                                      const struct gh_offload_at *at,
                                      gh_offload_group *wanted, gh_error *err);
typedef gh_status gh_offload_recorded_fn(struct gh_offload *offload,
                                         const struct gh_offload_at *at,
                                         gh_offload_group *wanted,
                                         struct gh_offload_script *script,
                                         gh_error *err);

/* eager_save.c, eager_load.c: of a pass that runs eagerly. */
gh_offload_eager_fn gh_offload_save_eager, gh_offload_commit_eager,
    gh_offload_load_eager, gh_offload_release_eager;
/* script.c: the same of one that is recorded, which `script` belongs to. */
gh_offload_recorded_fn gh_offload_save_recorded, gh_offload_commit_recorded,
    gh_offload_load_recorded, gh_offload_release_recorded;

/* Around a launch.  Before it: the graph's buffers are free to be written, and
 * what it reads is on its way; failing, nothing has changed and the graph must
 * not be launched.  After it: the copies out are issued or queued, and the
 * next ones back. */
gh_status gh_offload_before(struct gh_offload *offload,
                            const struct gh_offload_script *script,
                            const struct gh_offload_at *at, gh_error *err);
void gh_offload_after(struct gh_offload *offload,
                      const struct gh_offload_script *script);
/* The launch has failed, or is to be repeated by an eager pass. */
void gh_offload_take_back(struct gh_offload *offload,
                          const struct gh_offload_script *script);

/* ---- GRAPHHOOKS_CHECK, which runs a pass both ways ---------------------- */

/* Whether the step lets the graph read, and perhaps write, a group in a buffer
 * that is filled again for the eager run. */
bool gh_offload_fills_again(const struct gh_offload_script *script,
                            const gh_buffer *output);
/* The same of memory that is not filled again, so that who repeats the pass has
 * to restore it.  False: the step has none. */
bool gh_offload_keeps(const struct gh_offload_step *step, gh_buffer *kept);
/* The graph was launched for the comparison: all is as before the launch, for
 * an eager run of the same pass. */
void gh_offload_repeat(struct gh_offload *offload,
                       const struct gh_offload_script *script, void *stream);
/* Gives every buffer without a group other contents than it had, so that who
 * reads there finds something else in each of the two runs. */
void gh_offload_spoil(struct gh_offload *offload, void *stream);
/* The results are compared: copies out and releases what the eager run has
 * committed and released, which kept its contents until now. */
gh_status gh_offload_compared(struct gh_offload *offload, uint64_t pass,
                              gh_error *err);

#endif
