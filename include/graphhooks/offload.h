/*
 * graphhooks/offload.h - activations go to the host's memory and come back.
 *
 * What a module keeps for its backward is a group of tensors.  A host says
 * where in a pass a group is written, and where it is read again:
 *
 *     forward                                backward
 *     gh_offload_save(s, &group)             gh_offload_load(s, &group)
 *     write the tensors, read them           read the tensors
 *     gh_offload_commit(s, layer, module)    gh_offload_release(s, layer, module)
 *
 * The library says where the tensors are, or, with GH_OFFLOAD_OWN, the host
 * does until they are loaded.  Between commit and load they are in
 * pinned memory of the host, and the device's memory has gone to another
 * layer: a class of groups has a few device buffers in all, whatever the
 * number of layers and of microbatches in flight.
 *
 * All four are called between gh_layer_enter and gh_layer_exit, for the
 * microbatch of that pass, while the parts are issued.  In a pass that is
 * recorded they become event nodes of its graph, and the copies stay outside:
 * the library issues them at every replay, beside the graph.  In a replayed
 * pass a host calls nothing.  A group that a later pass of the forward reads
 * or commits is one of the outputs of the pass that saves it, and an input of
 * the later one: its place can change where a pass runs eagerly.
 *
 * The first step is the profile: all groups are offloaded, and the library
 * learns their sizes and their order.  When it ends the library decides which
 * groups stay on the device, for good.
 *
 * With fraction "auto" the profile is one step longer, and under EP overlap
 * two: the third has copies apart from exchanges of tokens, and groups that
 * would slow those by more than 5 % stay as well.  The second one is
 * measured: when each group is committed and loaded, without the time that is
 * waited for copies, and how long each copy takes.  Its end waits for the
 * device, once.  From that the step is simulated with both streams of copies,
 * and the groups that would be waited for stay, until the step is foreseen to
 * take at most 0.5 % longer than without any copies.  Times are those of passes
 * that run eagerly: where the host is slower than the device, which the log
 * says, replays leave less time than was measured.
 *
 * Ranks that must keep the same groups have to decide by the same profile, as
 * the decision depends on nothing else: no clock, no address, no order in
 * memory.  Two ranks measure different times, so for those use a fraction, or
 * give all the same times and link_mb_per_s where the groups are declared.
 * No result depends on whether ranks agree, only memory and time do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_OFFLOAD_H
#define GRAPHHOOKS_OFFLOAD_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Most tensors of a group. */
#define GH_MAX_GROUP 32u
/* gh_offload_group.module of a name of the host's own: this, and the name's
 * index in gh_offload_desc.names. */
#define GH_MODULE_NAMED (UINT32_C(1) << 31)

/**
 * What to offload, and how much of it.  Zero the struct, then set struct_size.
 * An environment variable that is named here wins.
 */
typedef struct gh_offload_desc {
    uint32_t struct_size;
    uint32_t reserved; /* must be 0 */

    /* Names separated by commas, of attn_norm, qkv_linear, core_attn,
     * attn_proj, mlp_norm, expert_fc1, moe_act and `names`; NULL or "": none.
     * GRAPHHOOKS_OFFLOAD */
    const char *modules;
    /* Modules that are the host's own, ended by NULL; NULL: none.  Read
     * during the open only. */
    const char *const *names;

    /* The share of the groups that go, "0" to "1", or since 0.4 "auto": as many
     * as their copies hide; NULL: "1".  GRAPHHOOKS_OFFLOAD_FRACTION */
    const char *fraction;
    /* Tensors below stay; 0: 1 MiB.  GRAPHHOOKS_OFFLOAD_MIN_BYTES */
    uint64_t min_bytes;
    /* Bytes of each chunk that stay on the device, times pipeline_rank. */
    uint64_t keep_bytes;
    uint32_t pipeline_rank;
    /* Buffers of each ring, 2 to 8; 0: 2.  GRAPHHOOKS_OFFLOAD_BUFFERS */
    uint32_t buffers;
    /* Most bytes of pinned memory; 0: no limit.
     * GRAPHHOOKS_OFFLOAD_POOL_BYTES */
    uint64_t pool_bytes;
    /* since 0.4 */
    /* Groups that come back ahead of the one that is needed, 1 to 16; 0: all
     * that the rings have room for, and with fraction "auto" what makes the
     * step shortest by the times.  GRAPHHOOKS_OFFLOAD_PREFETCH */
    uint32_t prefetch;
    /* Copies out of a ring that may be under way, 1 to 64: a commit beyond them
     * makes the stream wait for the oldest.  As many as there are buffers, or
     * 0, is no limit.  Since 0.5 also of a module's copies that read the host's
     * own memory, where the buffers say nothing.
     * GRAPHHOOKS_OFFLOAD_IN_FLIGHT */
    uint32_t in_flight;
    /* What a copy moves in a second, in units of 1,000,000 bytes, where it is
     * not measured: the host has said when groups are needed, or this is given
     * for ranks that have to agree.  0: 25,000.  Measured times win. */
    uint32_t link_mb_per_s;
    uint32_t reserved_tail; /* must be 0 */
} gh_offload_desc;

/* Frozen: arrays of it cross the ABI. */
typedef struct gh_offload_tensor {
    void *address; /* set by save and by load */
    uint64_t bytes;
} gh_offload_tensor;

/* Flags of gh_offload_group. */
enum {
    /* The tensors lie in memory of the host's own, where its allocator has put
     * them: gh_offload_save reads the addresses and sets none.  See
     * gh_offload_save.  Since 0.4. */
    GH_OFFLOAD_OWN = 1u << 0
};

/* Zero the struct, then set struct_size. */
typedef struct gh_offload_group {
    uint32_t struct_size;
    uint32_t layer;     /* of gh_model.layers, from 0 */
    uint32_t module;    /* one GH_MODULE_*, or GH_MODULE_NAMED | index */
    uint32_t n_tensors; /* 1 to GH_MAX_GROUP */
    gh_offload_tensor *tensors;

    /* since 0.4 */
    uint32_t flags;    /* GH_OFFLOAD_*; gh_offload_load has no use for them */
    uint32_t reserved; /* must be 0 */
    void *object; /* of GH_OFFLOAD_OWN: what gh_host_services.released is told;
                     NULL: it is not called for this group */
} gh_offload_group;

/**
 * The open forward is about to write a group.
 *
 * @param[in,out] group  bytes of each tensor; the addresses are set
 *
 * A tensor is aligned to 256 bytes.  Every tensor has an address, also when
 * the group stays on the device or its module is not offloaded at all, so a
 * host needs no buffers of its own for it.  The addresses are good until the
 * group's commit for the forward, and not before gh_offload_load for the
 * backward.  A group that is larger than it was in the first step stays on the
 * device in this pass.  In a recording it is refused with GH_ERR_INVALID: give
 * the pass up with gh_layer_cancel and enter it again, which runs it eagerly.
 * gh_layer_cancel takes back what the pass has saved; what it has loaded and
 * not released may be loaded again.
 *
 * With GH_OFFLOAD_OWN the host says where the tensors are.  The pass that saves
 * the group commits it too; between the two calls the addresses stay as they
 * are, and at the commit the tensors are final, so a host may call both once it
 * has written them.  gh_offload_load says where they are then: the
 * addresses that were saved if the group stayed there, others if not.
 *
 * - gh_host_services.released says when the memory is the host's again, once
 *   for each save that returned GH_OK.  In a pass that runs eagerly the copy to
 *   the host reads the memory itself, and the service is called from a later
 *   hook.  In a recording the commit copies the group to memory of the
 *   library's, in the graph, and calls the service.  A group that stays on the
 *   device stays where it is: the service is called by gh_offload_release,
 *   and a graph has those addresses, as it has those of all that the host
 *   allocates in a recording.
 * - Without the service, or where `object` is NULL, every commit copies the
 *   group to memory of the library's.  What is issued after the commit on the
 *   pass's stream may write over it.
 * - Tensors of a group that overlap are copied once, and lie in one copy when
 *   they are loaded.  Of a view that covers most of its storage give the
 *   storage, and find the view in it.  A tensor that two groups save is copied
 *   for each.
 * - In a replay the tensors are where they were in the recording, which the
 *   library cannot check.
 *
 * @return GH_OK; GH_ERR_STATE without an open forward, or when the group of
 *         this microbatch was saved already; GH_ERR_INVALID, GH_ERR_ABI for a
 *         bad group; GH_ERR_UNSUPPORTED in a capture of the host's own, or when the session
 *         has no offload; GH_ERR_NO_MEMORY; GH_ERR_DEVICE.
 * Stream: work that is issued later on gh_decision.stream waits until the
 * memory is free.  Blocks: never; the first step allocates.  Since: 0.3.
 */
GH_API gh_status gh_offload_save(gh_session *session, gh_offload_group *group,
                                 gh_error *err);

/**
 * All that this forward does with the group has been issued on
 * gh_decision.stream.  The copy to the host starts when that work has ended,
 * or with GRAPHHOOKS_OFFLOAD_DELAY=1 not before gh_flush_delayed.
 *
 * @return GH_OK; GH_ERR_STATE when the group was not saved, or, with
 *         GH_OFFLOAD_OWN, by another pass; else as save.
 * Blocks: never.  Since: 0.3.
 */
GH_API gh_status gh_offload_commit(gh_session *session, uint32_t layer,
                                   uint32_t module, gh_error *err);

/**
 * The open backward is about to read a group.
 *
 * @param[in,out] group  the tensors as they were saved; the addresses are set
 *
 * A group is loaded and released once: in the backward, or with
 * GH_SESSION_DELAY_WGRAD in the GH_WGRAD pass, or loaded in the one and released
 * in the other.
 *
 * @return GH_OK; GH_ERR_STATE when the group was not committed in this
 *         microbatch's forward, or was loaded already; else as save.
 * Stream: work that is issued later on gh_decision.stream waits for the copy.
 * Blocks: never.  Since: 0.3.
 */
GH_API gh_status gh_offload_load(gh_session *session, gh_offload_group *group,
                                 gh_error *err);

/**
 * The last reader of the group has been issued.
 * @return as gh_offload_commit().
 * Blocks: never.  Since: 0.3.
 */
GH_API gh_status gh_offload_release(gh_session *session, uint32_t layer,
                                    uint32_t module, gh_error *err);

/**
 * A group that a host knows before anything is recorded.  Zero the struct,
 * then set struct_size, which is the distance of two in an array.
 */
typedef struct gh_offload_declared {
    uint32_t struct_size;
    uint32_t layer;
    uint32_t module;
    uint32_t segment; /* gh_segment.index of the pass that saves it */
    uint64_t bytes;   /* of its tensors that go, each aligned to 256 */
    uint64_t gap_ns;  /* from its commit to its load; 0: unknown */
    const char *why;  /* set by the call: why it stays, NULL where it goes;
                         static storage */
    uint32_t flags;    /* GH_DECLARED_* */
    uint32_t reserved; /* must be 0 */
} gh_offload_declared;

/* gh_offload_declared.flags. */
enum {
    /* The host moves it by itself: whether it goes is settled with the others,
     * and it has no rings.  If it is saved all the same, it stays. */
    GH_DECLARED_ELSEWHERE = 1 << 0
};

/**
 * All groups that this session will offload: in the place of a first step in
 * which the host brackets its passes.
 *
 * @param[in,out] groups     in the order of their commits
 * @param         n          how many
 * @param         in_flight  the most microbatches that have a group at once
 *
 * Between passes, before any group was saved, and once: what goes is settled
 * by it, as the end of the profile would, and recordings may begin.  A group
 * that is not declared stays on the device.
 *
 * @return GH_OK; GH_ERR_STATE in a pass, or when groups were saved or declared
 *         already; GH_ERR_INVALID, GH_ERR_ABI for a bad group or one that is
 *         there twice, after which nothing is declared; GH_ERR_UNSUPPORTED
 *         when the session has no offload; GH_ERR_NO_MEMORY when there is none
 *         for some of the rings: their groups stay, and the rest goes.
 * Blocks: allocates the rings.  Since: 0.4.
 */
GH_API gh_status gh_offload_declare(gh_session *session,
                                    gh_offload_declared *groups, uint32_t n,
                                    uint32_t in_flight, gh_error *err);

/* Since the session was opened.  Set struct_size before the call. */
typedef struct gh_offload_stats {
    uint32_t struct_size;
    uint32_t groups;           /* of a microbatch, in all chunks */
    uint32_t groups_offloaded; /* of those, the ones that go */
    uint32_t reserved;
    uint64_t out_bytes, back_bytes; /* copied to the host, and back */
    uint64_t out_copies, back_copies;
    uint64_t late;        /* reloads that no prefetch had issued before */
    uint64_t flushes;     /* of delayed commits */
    uint64_t delayed;     /* commits that waited for one */
    uint64_t ring_bytes;  /* device memory of the rings */
    uint64_t kept_bytes;  /* device memory of what stays */
    uint64_t pinned_bytes; /* of the host */
    /* since 0.4 */
    uint64_t pinned_peak; /* the most of that which was in use at once */
    uint64_t saved_bytes; /* device memory that the groups that go would take
                             with all microbatches in flight, less the rings:
                             as it was settled */
    /* Of the steps that were timed: with GRAPHHOOKS_LOG=info the fourth after
     * the profile, else none.  Then at least 1 - stalled_ns / timed_ns of the
     * copies' time ran beside the compute.
     *
     * A stall is a wait for a copy of more than 5 us, at a save for the buffer
     * or at a load for its group.  In a pass that runs eagerly the wait itself
     * is timed.  In a replayed one the graph waits inside: what is counted, once
     * a launch, is the time from when the stream has come to it to the end of
     * the last copy that it waits for, which is never too little. */
    uint32_t timed_steps;
    uint32_t stalls;
    uint64_t timed_ns;   /* all copies, one after the other */
    uint64_t stalled_ns; /* all stalls */
} gh_offload_stats;

/**
 * Read the counters.
 * @return as gh_session_stats(); GH_ERR_UNSUPPORTED without offload.
 * Blocks: never.  Since: 0.3.
 */
GH_API gh_status gh_offload_get_stats(const gh_session *session,
                                      gh_offload_stats *stats, gh_error *err);

GH_END_DECLS

#endif
