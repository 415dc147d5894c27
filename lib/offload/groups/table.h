/*
 * table.h - what is offloaded: groups, their size classes, and their instances.
 *
 * A group is a module of a layer.  A size class is the groups of one module
 * that have the same bytes, and the two rings that they share.  An instance is
 * a group of one microbatch in flight: of a slot, or of a microbatch without
 * one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_TABLE_H
#define GH_OFFLOAD_TABLE_H

#include <graphhooks/offload.h>

#include "memory/pinned.h"
#include "offload/groups/ring.h"
#include "plan/policy.h"

#include <stdbool.h>

struct gh_size_class {
    uint32_t module;
    uint64_t bytes;
    uint32_t n_groups; /* those that go, of one flight */
    uint32_t in_pass;  /* most of them that one pass saves, in the profile */
    uint64_t pass;     /* the last one that saved any, and how many */
    uint32_t of_pass;
    struct gh_ring out, back;
};

struct gh_group {
    uint32_t layer, module, chunk;
    uint64_t bytes;  /* of the tensors that go, the most of the profile */
    uint64_t all;    /* of all of its tensors */
    uint64_t gap_ns; /* from its commit to its load; 0: unknown */
    enum gh_fate fate;
    bool placed;
    bool elsewhere; /* GH_DECLARED_ELSEWHERE */
    bool late;      /* GH_DECLARED_LATE */
    bool growth_said;
    uint32_t commit_order; /* in the order of first commits, in the profile */
    uint32_t ordinal; /* among the groups of its class */
    struct gh_size_class *size_class; /* NULL: nothing of it goes */
    struct gh_instance *of_slot;      /* max_slots of them */
    struct gh_instance *slotless;     /* those of microbatches without a slot */
};

enum gh_instance_state {
    GH_INSTANCE_IDLE = 0,
    GH_INSTANCE_WRITING, /* saved, and not committed */
    GH_INSTANCE_QUEUED,  /* committed, and the copy not issued */
    GH_INSTANCE_AWAY,    /* on the host */
    GH_INSTANCE_BACK,    /* a copy back was issued */
    GH_INSTANCE_READING, /* loaded, and not released */
    GH_INSTANCE_RELEASED /* and still in the order of commits */
};

/* Tensors that lie together.  What lies between runs is not copied, as nobody
 * has written it. */
struct gh_run {
    uint64_t offset, bytes;
    const char *from; /* memory of the host's; NULL: the buffer */
};

struct gh_loan;
struct gh_host_owned;

struct gh_instance {
    struct gh_group *group;
    struct gh_size_class *size_class; /* of its last flight */
    enum gh_instance_state state;
    uint32_t slot, microbatch;
    bool used;       /* ever, by a microbatch that has a backward */
    bool goes;       /* this time; else all of it is in `kept` */
    bool recorded;   /* a graph knows where `kept` is */
    bool ringed;     /* its graphs have it in the rings */
    bool unpinned;   /* they have it in `kept`: there was no pinned memory for
                        one more flight when the first was recorded */
    bool for_nobody; /* of a forward that no backward follows */
    bool said;       /* an eager pass has loaded it, and said where it is */
    uint64_t pass;   /* the number of the one that has saved it, or loaded it */
    uint64_t bytes;  /* of the part that goes, with what lies between runs */
    struct gh_run runs[GH_MAX_GROUP];
    uint32_t n_runs;
    struct gh_host_owned
        *host_memory;     /* NULL: none of its flights was the host's own */
    struct gh_loan *loan; /* the object that its memory is of; NULL: none */
    struct gh_ring_buffer *out, *back;
    struct gh_pinned_block *block;
    void *kept; /* device memory of its own, for what stays */
    uint64_t kept_bytes;
    void *wider; /* the same, where `kept` is too small and a graph knows it */
    uint64_t wider_bytes;
    void *held;      /* of the two, what is used this time */
    uint64_t stays;  /* bytes in it */
    uint64_t layout; /* struct gh_split */
    void *stream;    /* where it was used last */
    void *ended;     /* event, of an instance without a slot: `kept` was read */
    struct gh_instance *before, *after; /* in the order of commits */
    struct gh_instance *next;           /* of the group, without a slot */
    struct gh_instance *next_queued;
};

struct gh_table {
    uint32_t max_slots;
    struct gh_group **groups;
    uint32_t n_groups;
    struct gh_size_class **classes;
    uint32_t n_classes;
    struct gh_memory *memory;
};

void gh_table_free(struct gh_table *table);

/* NULL: there is none. */
struct gh_group *gh_table_find(const struct gh_table *table, uint32_t layer,
                               uint32_t module);
/* Which of the groups it is; n_groups: none. */
uint32_t gh_table_index(const struct gh_table *table,
                        const struct gh_group *group);
gh_status gh_table_add(struct gh_table *table, uint32_t layer, uint32_t module,
                       uint32_t chunk, struct gh_group **group_p,
                       gh_error *err);
/* Finds the class of that module with so many bytes, which is made if there is
 * none. */
gh_status gh_table_find_class(struct gh_table *table, uint32_t module,
                              uint64_t bytes,
                              struct gh_size_class **size_class_p,
                              gh_error *err);
/* Finds the instance of a slot.  Where `slot` is GH_SLOT_NONE: that of the
 * microbatch in flight, or else an idle one, which is made if there is none. */
gh_status gh_table_instance(const struct gh_table *table,
                            struct gh_group *group, uint32_t slot,
                            uint32_t microbatch,
                            struct gh_instance **instance_p, gh_error *err);

static inline bool gh_instance_is_live(const struct gh_instance *instance)
{
    return instance->state != GH_INSTANCE_IDLE;
}

static inline bool gh_instance_is_committed(const struct gh_instance *instance)
{
    return instance->state == GH_INSTANCE_AWAY ||
           instance->state == GH_INSTANCE_BACK;
}

#endif
