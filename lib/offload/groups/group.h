/*
 * group.h - which group a host means, and where its tensors go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_GROUP_H
#define GH_OFFLOAD_GROUP_H

#include "offload/groups/state.h"

/* How a group's tensors are split. */
struct gh_split {
    uint64_t goes, stays; /* bytes, each tensor aligned */
    uint64_t layout;      /* a hash: equal for equal tensors */
};

/* Finds the group, or adds it. */
gh_status gh_group_meet(struct gh_offload *offload,
                        const struct gh_offload_at *at,
                        const gh_offload_group *wanted,
                        struct gh_group **group_p, struct gh_split *split_p,
                        gh_error *err);
/* Finds the size class of a flight with these bytes: that of the group, unless
 * the profile sees the group larger than before. */
gh_status
gh_group_find_class(struct gh_offload *offload, const struct gh_offload_at *at,
                    const struct gh_group *group, const struct gh_split *split,
                    struct gh_size_class **size_class_p, gh_error *err);
/* A save has gone well: the first step learns the size of the group.  What is
 * refused, or finds no memory, teaches nothing. */
void gh_group_learn(struct gh_offload *offload, const struct gh_offload_at *at,
                    struct gh_group *group, const struct gh_split *split,
                    struct gh_size_class *size_class);
/* Finds the instance of this microbatch.  Fails if the group was never
 * saved. */
gh_status gh_group_saved(struct gh_offload *offload,
                         const struct gh_offload_at *at, uint32_t layer,
                         uint32_t module, struct gh_instance **instance_p,
                         gh_error *err);

/* Whether a tensor of so many bytes is large enough to go. */
bool gh_group_tensor_goes(const struct gh_offload *offload, uint64_t bytes);
/* How the group is split, if the part that can go goes, or stays. */
struct gh_split gh_group_split(const struct gh_offload *offload,
                               const gh_offload_group *wanted, bool goes);
/* Finds the runs of the part that goes: the bytes that are tensors.  Returns
 * their number. */
uint32_t gh_group_find_runs(const struct gh_offload *offload,
                            const gh_offload_group *wanted,
                            struct gh_run runs[GH_MAX_GROUP]);
/* Sets the address of each tensor: in `moved` for those that go, else in
 * `kept`. */
void gh_group_lay_out(const struct gh_offload *offload,
                      gh_offload_group *wanted, bool goes, void *moved,
                      void *kept);

/* Whether the library may read the group where the host has it, as the host
 * hears when the loan ends. */
bool gh_group_is_lent(const struct gh_offload *offload,
                      const gh_offload_group *wanted);

/* Gives the instance device memory for so many bytes: `kept`, or `wider` if a
 * graph knows `kept` and that is too small. */
gh_status gh_group_keep(struct gh_offload *offload,
                        struct gh_instance *instance, uint64_t bytes,
                        gh_error *err);
/* Makes `kept` at least so large.  A graph may know it from now on. */
gh_status gh_group_keep_for_graph(struct gh_offload *offload,
                                  struct gh_instance *instance, uint64_t bytes,
                                  gh_error *err);

/* Says once that pinned memory ran out.  A profile does not: what stays is
 * reported when it ends. */
void gh_group_say_pool(struct gh_offload *offload, const gh_error *why);

/* The error for a load of other tensors than were saved. */
gh_status gh_group_refuse_tensors(const struct gh_offload *offload,
                                  const struct gh_instance *instance,
                                  const gh_offload_group *wanted,
                                  gh_error *err);
/* The error for a call out of turn. */
gh_status gh_group_refuse(const struct gh_offload *offload,
                          const struct gh_instance *instance, const char *call,
                          gh_error *err);

#endif
