/*
 * graphhooks/memory.h - give a session's memory back, and take it again at the
 * same addresses.
 *
 * Graphs hold addresses, so nobody can free the memory that they use and
 * allocate it again.  A suspended session keeps its addresses and its graphs,
 * and gives the memory behind the addresses back to the driver:
 *
 *     desc.flags |= GH_SESSION_SUSPENDS;
 *     gh_session_open(&desc, &session, &err);
 *     ...                                       train
 *     gh_session_suspend(session, &err);        between microbatches
 *     ...                                       others use the memory
 *     gh_session_resume(session, &err);
 *     ...                                       train: graphs replay as before
 *
 * Given back is the device memory that the library has allocated for the
 * session (inputs of graphs, sequences, buffers of offload) and its pinned
 * memory.  Memory of the host's, which includes what it lends by
 * gh_host_services.device_alloc, stays with the host; a stash and an exchange
 * have calls of their own (graphhooks/stash.h, graphhooks/exchange.h).  Nothing
 * is saved: what the memory held is lost, as no replay reads it before it
 * writes it.  doc/memory.md says more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_MEMORY_H
#define GRAPHHOOKS_MEMORY_H

#include <graphhooks/session.h>

GH_BEGIN_DECLS

/**
 * Give the session's memory back.  Its graphs stay, and their addresses stay
 * reserved.
 *
 * Nothing may be in flight: no pass is open, every microbatch has run its last
 * pass or its step has ended, and no group of gh_offload_save() waits for its
 * release.  The host's own work that reads memory of the session's, such as
 * gh_decision.inputs, has ended or is on a stream that passes have used.
 * Where banks have ranks, all of them call this between the same passes: all
 * suspend, or none does.  Where threads of one process are ranks that the
 * library does not know, none resumes before all have suspended.
 *
 * Until gh_session_resume() every call but those that count or read the plan,
 * and gh_session_close(), returns GH_ERR_STATE.
 *
 * @return GH_OK; GH_ERR_STATE when something is in flight, which the text
 *         names, when the host captures one of its streams, or when another
 *         rank cannot; GH_ERR_UNSUPPORTED for a session without
 *         GH_SESSION_SUSPENDS, or where the device cannot map memory to
 *         reserved addresses; GH_ERR_DEVICE; GH_ERR_RANKS.  After any other
 *         error the session has its memory, and goes on.
 *
 * Blocks: until the work that the session's streams have now has ended, copies
 * of offload included, and all ranks have called it.  Calls
 * gh_host_services.released.  Since: 1.0.
 */
GH_API gh_status gh_session_suspend(gh_session *session, gh_error *err);

/**
 * Take memory for a suspended session, at the addresses that its graphs hold.
 * Its content is not that of before: a host that keeps data of its own in
 * gh_decision.inputs writes it again.  Where banks have ranks, all call it: all
 * resume, or none does.
 *
 * @return GH_OK; GH_ERR_STATE for a session that is not suspended;
 *         GH_ERR_NO_MEMORY or GH_ERR_DEVICE: the session has no memory, and is
 *         suspended still, as are the other ranks; call it again once there
 *         is memory; GH_ERR_RANKS.
 *
 * Blocks: while the driver allocates, and until all ranks have called it.
 * Since: 1.0.
 */
GH_API gh_status gh_session_resume(gh_session *session, gh_error *err);

/** What a session has, and what suspending it gave back.  Set struct_size
 * before the call.  Since 1.0. */
typedef struct gh_memory_stats {
    uint32_t struct_size;
    uint32_t suspended;    /* 1: gh_session_resume() is to come */
    uint64_t device_bytes; /* device memory that the library has allocated for
                              the session and has now */
    uint64_t pinned_bytes; /* pinned memory of offload, now */
    uint64_t lent_bytes;   /* device memory of gh_host_services.device_alloc */
    uint64_t device_given; /* given back by the last gh_session_suspend() */
    uint64_t pinned_given;
    uint64_t suspends;   /* times that it was suspended */
    uint64_t suspend_ns; /* host time of the last gh_session_suspend(), with
                            its wait */
    uint64_t resume_ns;  /* and of the last gh_session_resume() */

    /* Whose the device memory is: device_bytes + lent_bytes is the sum of all
     * parts from here to spare_bytes.  Those of a suspended session are of its
     * addresses: their sum is what device_bytes will be once it is resumed. */
    uint64_t slot_bytes;   /* inputs of graphs of bank 0, in all slots */
    uint64_t bank_bytes;   /* what the other banks have besides, as banks
                              share the memory of a slot */
    uint64_t offset_bytes; /* offsets of packed sequences */
    uint64_t ring_bytes;   /* rings of offload */
    uint64_t kept_bytes;   /* groups of offload that stay on the device */
    uint64_t check_bytes;  /* what GRAPHHOOKS_CHECK compares in */
    uint64_t held_bytes;   /* unused, and freed when the session closes:
                              freeing waits for other devices */
    uint64_t spare_bytes;  /* with GH_SESSION_SUSPENDS: the rest of whole
                              regions */

    uint64_t forecast_bytes; /* slots, banks, offsets, rings and kept groups, as
                                foretold before the first recording; 0: not
                                yet, or nothing was shown */
} gh_memory_stats;

/**
 * Read what a session has of memory, also while it is suspended.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         struct; GH_ERR_STATE for a closed session.
 * Blocks: never.  Since: 1.0.
 */
GH_API gh_status gh_memory_get_stats(const gh_session *session,
                                     gh_memory_stats *stats, gh_error *err);

GH_END_DECLS

#endif
