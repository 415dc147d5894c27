/*
 * group.h - which group a host means, and where its tensors go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_GROUP_H
#define GH_OFFLOAD_GROUP_H

#include "offload/offload.h"

/* How a group's tensors are split. */
struct gh_split {
    uint64_t goes, stays; /* bytes, each tensor aligned */
    uint64_t layout;      /* the same for the same tensors only */
};

/* Finds the group, or adds it; the first step learns its size. */
gh_status gh_group_meet(struct gh_offload *offload,
                        const struct gh_offload_at *at,
                        const gh_offload_group *wanted,
                        struct gh_group **group_p, struct gh_split *split_p,
                        gh_error *err);
/* The instance that was saved by this microbatch. */
gh_status gh_group_saved(struct gh_offload *offload,
                         const struct gh_offload_at *at, uint32_t layer,
                         uint32_t module, struct gh_instance **instance_p,
                         gh_error *err);

/* Whether a tensor of so many bytes is large enough to go. */
bool gh_group_tensor_goes(const struct gh_offload *offload, uint64_t bytes);
/* How it is split where the part that can go does, or does not. */
struct gh_split gh_group_split(const struct gh_offload *offload,
                               const gh_offload_group *wanted, bool goes);
/* Writes down which bytes of the part that goes are tensors; returns how many
 * runs they are. */
uint32_t gh_group_find_runs(const struct gh_offload *offload,
                            const gh_offload_group *wanted,
                            struct gh_run runs[GH_MAX_GROUP]);
/* Says where each tensor is. */
void gh_group_lay_out(const struct gh_offload *offload,
                      gh_offload_group *wanted, bool goes, void *moved,
                      void *kept);

/* Whether the host hears of the end of a loan; no part of it is needed where
 * not. */
bool gh_group_is_lent(const struct gh_offload *offload,
                      const gh_offload_group *wanted);

/* Memory of the instance's own for so many bytes: `kept`, or where a graph
 * knows that and it is too small, `wider`. */
gh_status gh_group_keep(struct gh_offload *offload,
                        struct gh_instance *instance, uint64_t bytes,
                        gh_error *err);
/* `kept` has at least so many bytes, for a graph to know it. */
gh_status gh_group_keep_for_graph(struct gh_offload *offload,
                                  struct gh_instance *instance, uint64_t bytes,
                                  gh_error *err);

/* A call out of its turn. */
gh_status gh_group_refuse(const struct gh_offload *offload,
                          const struct gh_instance *instance, const char *call,
                          gh_error *err);

#endif
