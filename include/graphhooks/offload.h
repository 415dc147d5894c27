/*
 * graphhooks/offload.h - copy activations to host memory and back.
 *
 * A group is the set of tensors that a module keeps for its backward.  The host
 * marks where in a pass a group is written, and where it is read again:
 *
 *     forward                              backward
 *     gh_offload_save(s, &group)           gh_offload_load(s, &group)
 *     write the tensors, read them         read the tensors
 *     gh_offload_commit(s, layer, module)  gh_offload_release(s, layer, module)
 *
 * The library chooses the addresses of the tensors.  With GH_OFFLOAD_HOST_OWNED
 * the host chooses those before the load.  Between commit and load the group is
 * in pinned host memory, and other layers use its device memory: groups of
 * equal layout share a few device buffers (a ring), whose number does not grow
 * with the number of layers or of microbatches in flight.
 *
 * All four are called between gh_layer_enter and gh_layer_exit, for the
 * microbatch of that pass, while the parts are issued.  In a recorded pass they
 * become event nodes of the graph; the copies are not in the graph, and the
 * library issues them beside it at every replay.  In a replayed pass the host
 * calls none of the four.  If a later forward pass reads or commits a group,
 * the group is an output of the pass that saves it and an input of the later
 * one, as its address may differ where a pass runs eagerly.
 *
 * Which groups go is decided once.  In the first step, the profile, all groups
 * are offloaded and the library learns their sizes and their order.  At its end
 * the library decides which groups stay on the device.
 *
 * With fraction "auto" the profile has a second step, in which the library
 * measures when each group is committed and loaded, not counting waits for
 * copies, and how long each copy takes.  At its end the library waits for the
 * device, once, and simulates the step with one stream of copies in each
 * direction.  It keeps groups on the device until the simulated step takes at
 * most 0.5 % longer than without copies.  With EP overlap a third step keeps
 * copies and exchanges of tokens apart, in a fourth the ranks agree on how long
 * exchanges took in both (gh_overlap_run), and groups whose copies would slow
 * exchanges by more than 5 % stay too.  All times are measured in eager passes.
 * Where the host is slower than the device, replays are shorter than that and
 * hide less; the log says so.
 *
 * The decision depends on the profile alone: not on a clock, an address or an
 * order in memory.  Ranks that have to keep the same groups need the same
 * profile, but measured times differ between ranks.  So use a fraction there,
 * or declare the groups with equal times and an equal link_mb_per_s.  Results
 * never depend on whether ranks agree; only memory and time do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_OFFLOAD_H
#define GRAPHHOOKS_OFFLOAD_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Most tensors of a group. */
#define GH_MAX_GROUP 32u
/* gh_offload_group.module of a module of the host's own: GH_MODULE_NAMED | i
 * for gh_offload_desc.names[i]. */
#define GH_MODULE_NAMED (UINT32_C(1) << 31)

/**
 * What to offload, and how much of it.  Zero the struct, then set struct_size.
 * An environment variable wins over the field that names it.  Since 0.4.
 */
typedef struct gh_offload_desc {
    uint32_t struct_size;
    uint32_t reserved; /* must be 0 */

    /* Names separated by commas, of attn_norm, qkv_linear, core_attn,
     * attn_proj, mlp_norm, expert_fc1, moe_act and `names`; NULL or "": none.
     * GRAPHHOOKS_OFFLOAD */
    const char *modules;
    /* Names of modules of the host's own, ended by NULL; NULL: none.  One that
     * is also a name above means the host's.  Read during gh_session_open()
     * only. */
    const char *const *names;

    /* The share of the groups to offload, "0" to "1"; or "auto": as many as can
     * be copied without a delay.  NULL: "1".  GRAPHHOOKS_OFFLOAD_FRACTION */
    const char *fraction;
    /* Smaller tensors stay on the device; 0: 1 MiB.
     * GRAPHHOOKS_OFFLOAD_MIN_BYTES */
    uint64_t min_bytes;
    /* keep_bytes * pipeline_rank bytes of each chunk stay on the device.
     * GRAPHHOOKS_OFFLOAD_KEEP_BYTES, since 1.0 */
    uint64_t keep_bytes;
    uint32_t pipeline_rank;
    /* Device buffers of each ring, 2 to 8; 0: 2.
     * GRAPHHOOKS_OFFLOAD_BUFFERS */
    uint32_t buffers;
    /* The most bytes of pinned host memory; 0: no limit.
     * GRAPHHOOKS_OFFLOAD_POOL_BYTES */
    uint64_t pool_bytes;
    /* How many groups are copied back ahead of the one that is needed, 1 to 16.
     * 0: as many as the rings hold, or with fraction "auto" as many as make the
     * simulated step shortest.  GRAPHHOOKS_OFFLOAD_PREFETCH */
    uint32_t prefetch;
    /* The most copies out of a ring that run at the same time, 1 to 64: at a
     * further commit the pass's stream waits for the oldest one.  0, or at
     * least the number of buffers: no limit.  Since 0.5 it also limits the
     * copies of a module that read the host's own memory, for which the number
     * of buffers does not count.  GRAPHHOOKS_OFFLOAD_IN_FLIGHT */
    uint32_t in_flight;
    /* Speed of a copy where none is measured, in 1,000,000 bytes per second;
     * 0: 25,000.  For groups that are declared with times.  A measured speed
     * wins. */
    uint32_t link_mb_per_s;
    uint32_t reserved_tail; /* must be 0 */
} gh_offload_desc;

/* Frozen: arrays of it cross the ABI.  Since 0.4. */
typedef struct gh_offload_tensor {
    void *address; /* device memory; set by gh_offload_save (read there with
                      GH_OFFLOAD_HOST_OWNED) and by gh_offload_load */
    uint64_t bytes;
} gh_offload_tensor;

/* Flags of gh_offload_group. */
enum {
    /* The tensors are in device memory of the host's own: gh_offload_save reads
     * their addresses instead of setting them. */
    GH_OFFLOAD_HOST_OWNED = 1u << 0
};

/* One group.  Zero the struct, then set struct_size.  Since 0.4. */
typedef struct gh_offload_group {
    uint32_t struct_size;
    uint32_t layer;     /* as added to the model, from 0 */
    uint32_t module;    /* one GH_MODULE_*, or GH_MODULE_NAMED | index */
    uint32_t n_tensors; /* 1 to GH_MAX_GROUP */
    gh_offload_tensor *tensors; /* n_tensors; the call reads and writes them */

    uint32_t flags;    /* GH_OFFLOAD_*; ignored by gh_offload_load */
    uint32_t reserved; /* must be 0 */
    void *object;      /* with GH_OFFLOAD_HOST_OWNED: handed to
                          gh_host_services.released; NULL: the service is not
                          called for this group */
} gh_offload_group;

/**
 * Begin a group that the open forward is about to write.
 *
 * @param[in,out] group  bytes of each tensor; the addresses are set
 *
 * Every tensor gets an address, aligned to 256 bytes, also when its group stays
 * on the device or its module is not offloaded at all, so the host needs no
 * buffers of its own.  The forward may use the address until
 * gh_offload_commit; the backward uses the one that gh_offload_load returns.
 *
 * A group that is larger than in the first step stays on the device in this
 * pass.  In a recording it is refused with GH_ERR_INVALID: call gh_layer_cancel
 * and enter the pass again, which then runs eagerly.  gh_layer_cancel forgets
 * the groups that the pass has saved; groups that it has loaded and not
 * released may be loaded again.
 *
 * With GH_OFFLOAD_HOST_OWNED the host gives the addresses, and these rules
 * hold:
 *
 * - The pass that saves the group also commits it.  Between the two calls the
 *   addresses do not change, and at the commit all writes have been issued: a
 *   host may make both calls after the writes.  gh_offload_load returns the
 *   saved addresses if the group stayed on the device, else others.
 * - gh_host_services.released tells the host that it may use the memory again,
 *   once for each save that returned GH_OK.  In an eager pass the copy to
 *   the host reads this memory, and a later hook calls the service.  In a
 *   recording the commit copies the group, in the graph, to memory of the
 *   library's, and calls the service.  If the group stays on the device it is
 *   not copied: gh_offload_release calls the service, and a graph holds the
 *   addresses, as it does those of all memory that the host allocates in a
 *   recording.
 * - Without the service, or where `object` is NULL, every commit copies the
 *   group to memory of the library's.  Work that is issued on the pass's
 *   stream after the commit may overwrite the host's memory.
 * - Tensors of a group that overlap are copied once, and overlap likewise when
 *   they are loaded.  For a view that covers most of its storage, give the
 *   storage and find the view in it.  A tensor that is in two groups is copied
 *   for each.
 * - In a replay the tensors have to be where they were in the recording; the
 *   library cannot check that.
 *
 * @return GH_OK; GH_ERR_STATE without an open forward, or when the group of
 *         this microbatch was saved already; GH_ERR_INVALID or GH_ERR_ABI for a
 *         bad group; GH_ERR_UNSUPPORTED while the host itself captures the
 *         stream, or in a session that was opened without an
 *         gh_offload_desc and offloads nothing; GH_ERR_NO_MEMORY;
 *         GH_ERR_DEVICE.
 * Stream: work that is issued later on gh_decision.stream waits until the
 * memory is free.  Blocks: never; the first step allocates.  Since: 0.4.
 */
GH_API gh_status gh_offload_save(gh_session *session, gh_offload_group *group,
                                 gh_error *err);

/**
 * Copy a group to the host: all work of this forward on the group has been
 * issued on gh_decision.stream.  The copy starts when that work has ended, or
 * with GRAPHHOOKS_OFFLOAD_DELAY=1 not before gh_flush_delayed.
 *
 * @return GH_OK; GH_ERR_STATE when the group was not saved, or, with
 *         GH_OFFLOAD_HOST_OWNED, by another pass; else as save.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_offload_commit(gh_session *session, uint32_t layer,
                                   uint32_t module, gh_error *err);

/**
 * Load a group that the open backward is about to read.
 *
 * @param[in,out] group  bytes of each tensor as they were saved; the addresses
 *                       are set
 *
 * The backward reads the group at these addresses, never at those of
 * gh_offload_save: that memory has other groups by then, and in the first step
 * it is filled with NaN on a GPU, so that the mistake shows; the software
 * device reports it.
 *
 * Until gh_offload_release the host may also write into the group; what it
 * writes is lost then.  GRAPHHOOKS_CHECK gives the group to both of its runs as
 * it was saved, whether or not it is listed as an output.  A group of
 * GH_OFFLOAD_HOST_OWNED that stays on the device is the host's own memory: list
 * it as an output with GH_BUFFER_UPDATED.
 *
 * A group is loaded once and released once, in the backward.  With
 * GH_SESSION_DELAY_WGRAD each of the two calls may be in the GH_WGRAD pass
 * instead.
 *
 * @return GH_OK; GH_ERR_STATE when the group was not committed in this
 *         microbatch's forward, or was loaded already; else as save.
 * Stream: work that is issued later on gh_decision.stream waits for the copy.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_offload_load(gh_session *session, gh_offload_group *group,
                                 gh_error *err);

/**
 * Release a loaded group: the last work that reads it has been issued on
 * gh_decision.stream.
 *
 * @return as gh_offload_commit().
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_offload_release(gh_session *session, uint32_t layer,
                                    uint32_t module, gh_error *err);

/**
 * A group that the host declares before the first step.  Zero the struct, then
 * set struct_size, which is also the stride of an array of them.  Since 0.4.
 */
typedef struct gh_offload_declared {
    uint32_t struct_size;
    uint32_t layer;   /* as in gh_offload_group */
    uint32_t module;  /* as in gh_offload_group */
    uint32_t segment; /* gh_segment.index of the pass that saves it, which may
                         be of another layer */
    uint64_t bytes;   /* of the tensors to offload, each rounded up to 256 */
    uint64_t gap_ns;  /* time from its commit to its load; 0: unknown */
    const char *why;  /* set by the call: NULL if the group is offloaded, else
                         why it stays; static text */
    uint32_t flags;    /* GH_DECLARED_* */
    uint32_t reserved; /* must be 0 */
} gh_offload_declared;

/* gh_offload_declared.flags. */
enum {
    /* The host copies this group itself.  The library decides with the others
     * whether it is offloaded, and gives it no ring.  If the host saves it all
     * the same, it stays on the device. */
    GH_DECLARED_ELSEWHERE = 1 << 0,
    /* since 1.0 */
    /* The host saves this group just before it commits it, so that the save
     * waits for a buffer as late as can be. */
    GH_DECLARED_LATE = 1 << 1
};

/**
 * Declare all groups that this session will offload, instead of a profile.
 *
 * Call it once, between passes, before any group is saved.  The library then
 * decides which groups are offloaded, as it would at the end of the profile,
 * and recordings may begin.  A group that is not declared stays on the device.
 *
 * @param[in,out] groups     n of them, in the order of their commits
 * @param         n          the number of groups
 * @param         in_flight  the most microbatches in flight at once
 *
 * @return GH_OK; GH_ERR_STATE while a pass is open, or when groups were saved
 *         or declared already; GH_ERR_INVALID or GH_ERR_ABI for a bad group or
 *         one that is there twice: nothing is declared; GH_ERR_UNSUPPORTED when
 *         the session does not offload; GH_ERR_NO_MEMORY when there is no
 *         memory for some rings: their groups stay on the device, and the
 *         others are offloaded.
 * Blocks: while the rings are allocated.  Since: 0.4.
 */
GH_API gh_status gh_offload_declare(gh_session *session,
                                    gh_offload_declared *groups, uint32_t n,
                                    uint32_t in_flight, gh_error *err);

/**
 * Whether the session offloads groups of a module: what gh_offload_desc and the
 * environment ask for together.  For a host that copies its tensors into a
 * group, or splits its passes, only where that is of use.  Whether one group of
 * the module goes is decided later, and it may stay.
 *
 * @param module  as in gh_offload_group; 0: any module
 *
 * @return 1: it does; 0: it does not, there is no such module, or `session` is
 *         NULL or closed.
 * Blocks: never.  Since: 1.0.
 */
GH_API uint32_t gh_offload_is_on(const gh_session *session, uint32_t module);

/* Counters since the session was opened.  Set struct_size before the call.
 * Since 0.4. */
typedef struct gh_offload_stats {
    uint32_t struct_size;
    uint32_t groups;           /* of a microbatch, in all chunks */
    uint32_t groups_offloaded; /* those of them that are offloaded */
    uint32_t reserved;
    uint64_t out_bytes, back_bytes; /* copied to the host, and back */
    uint64_t out_copies, back_copies;
    uint64_t late;        /* copies back that were issued only at the load, and
                             not ahead of it */
    uint64_t flushes;     /* times that delayed copies were issued */
    uint64_t delayed;     /* copies that were delayed until then */
    uint64_t ring_bytes;  /* device memory of the rings */
    uint64_t kept_bytes;  /* device memory of the library's for groups that
                             stay on the device */
    uint64_t pinned_bytes; /* pinned host memory */
    uint64_t pinned_peak; /* the most of pinned_bytes in use at the same time */
    uint64_t saved_bytes; /* device memory that the offloaded groups would take
                             with all microbatches in flight, less ring_bytes;
                             as computed at the decision */
    /* Of timed steps: with GRAPHHOOKS_LOG=info the fourth step after the
     * profile, else none.  At least 1 - stalled_ns / timed_ns of the time of
     * the copies overlapped with compute.
     *
     * A stall is a wait for a copy that takes more than 5 us: at a save for the
     * buffer, or at a load for the group.  In an eager pass the wait itself is
     * timed.  A replayed graph waits inside, so one stall a launch is counted,
     * from the time at which the stream reaches the graph to the end of the
     * last copy that it waits for: an upper bound. */
    uint32_t timed_steps;
    uint32_t stalls;
    uint64_t timed_ns;   /* sum over all copies */
    uint64_t stalled_ns; /* sum over all stalls */
} gh_offload_stats;

/**
 * Read the counters.
 * @return as gh_session_stats(); GH_ERR_UNSUPPORTED without offload.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_offload_get_stats(const gh_session *session,
                                      gh_offload_stats *stats, gh_error *err);

GH_END_DECLS

#endif
