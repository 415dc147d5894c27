/*
 * host_owned.h - groups whose tensors lie in memory of the host's own.
 *
 * Tensors that overlap are one span, which is copied as a whole; in memory of
 * the library's the spans lie one after the other, each where its first tensor
 * would lie if there were no overlap.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_HOST_OWNED_H
#define GH_OFFLOAD_HOST_OWNED_H

#include "offload/groups/table.h"

struct gh_offload;

enum gh_host_owned_mode {
    GH_HOST_OWNED_NOT = 0, /* the library has said where the tensors are */
    GH_HOST_OWNED_STAYS,   /* they are read where they are */
    GH_HOST_OWNED_DIRECT, /* the copy out reads them where they are; but what is
                      too small to go is copied as the next */
    GH_HOST_OWNED_STAGED /* the commit copies them to memory of the library's */
};

struct gh_host_owned_span {
    char *from; /* where the host has it */
    uint64_t bytes;
    uint64_t offset; /* in the part that goes, or in the part that stays */
    bool goes;
};

/* A tensor of a span; `delta` bytes after where that begins. */
struct gh_host_owned_tensor {
    uint64_t bytes, delta;
    uint32_t span;
};

struct gh_host_owned {
    enum gh_host_owned_mode mode;
    bool by_graph; /* a graph has saved it, so `from` is the same each time */
    uint32_t n_spans, n_tensors;
    uint64_t goes, stays; /* bytes, each span aligned */
    uint64_t shape;       /* of the overlaps; 0: there are none */
    struct gh_host_owned_span spans[GH_MAX_GROUP];
    struct gh_host_owned_tensor tensors[GH_MAX_GROUP];
};

static inline bool gh_is_host_owned(const gh_offload_group *wanted)
{
    return (wanted->flags & GH_OFFLOAD_HOST_OWNED) != 0;
}

static inline bool gh_instance_is_host_owned(const struct gh_instance *instance)
{
    return instance->host_memory != NULL &&
           instance->host_memory->mode != GH_HOST_OWNED_NOT;
}

/* Finds the spans, and where each lies if the part that can go goes, or stays.
 * Leaves the mode alone. */
void gh_host_owned_lay(const struct gh_offload *offload,
                       const gh_offload_group *wanted, bool goes,
                       struct gh_host_owned *own);
/* Splits the same spans again: the part that can go goes, or stays. */
void gh_host_owned_split(const struct gh_offload *offload,
                         struct gh_host_owned *own, bool goes);
/* Chooses how the tensors are held.  `lent`: the host hears when the memory is
 * its again. */
enum gh_host_owned_mode gh_host_owned_choose(bool goes, bool lent, bool eager);

/* Makes instance->host_memory, once. */
gh_status gh_host_owned_make(struct gh_instance *instance, gh_error *err);
void gh_host_owned_copy(struct gh_host_owned *to,
                        const struct gh_host_owned *from);

/* Resets the mode, as the next flight may have no tensors of the host's own. */
static inline void gh_host_owned_forget(struct gh_instance *instance)
{
    if (instance->host_memory != NULL) {
        instance->host_memory->mode = GH_HOST_OWNED_NOT;
    }
}
/* The error for a commit by another pass than the one that has saved. */
gh_status gh_host_owned_refuse_pass(const struct gh_offload *offload,
                                    const struct gh_instance *instance,
                                    gh_error *err);

/* Like gh_group_find_runs().  `direct`: the runs are read from the host's
 * memory, and else from a buffer. */
uint32_t gh_host_owned_find_runs(const struct gh_host_owned *own, bool direct,
                                 struct gh_run runs[GH_MAX_GROUP]);
/* Copies to the library's memory what the mode says. */
gh_status gh_host_owned_stage(struct gh_offload *offload,
                              const struct gh_host_owned *own, void *moved,
                              void *kept, void *stream, gh_error *err);

/* Whether the tensors have the sizes of those that were saved. */
bool gh_host_owned_fits(const struct gh_host_owned *own,
                        const gh_offload_group *wanted);
gh_status gh_host_owned_refuse_load(const struct gh_offload *offload,
                                    const struct gh_host_owned *own,
                                    const gh_offload_group *wanted,
                                    gh_error *err);
/* Sets the address of each tensor. */
void gh_host_owned_lay_out(const struct gh_host_owned *own,
                           gh_offload_group *wanted, void *moved, void *kept);

/* For a graph that loads the group: sets `from` of each span that stays to
 * where the graph reads it.  That is where the host has it, or in `kept`. */
void gh_host_owned_fix(struct gh_host_owned *own, void *kept);
/* Copies what stays to where the graph reads it, before a launch. */
gh_status gh_host_owned_bring(struct gh_offload *offload,
                              const struct gh_instance *instance,
                              const struct gh_host_owned *fixed, void *stream,
                              gh_error *err);

#endif
