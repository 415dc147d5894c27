/*
 * overlap.c - the calls of graphhooks/overlap.h: checks what the host hands
 * over, then lets lib/schedule walk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/overlap.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"
#include "schedule/schedule.h"

#define CHUNKS ((uint32_t)(GH_OVERLAP_FORWARD | GH_OVERLAP_BACKWARD))
#define KNOWN_FLAGS (CHUNKS | (uint32_t)GH_OVERLAP_EARLY_RELEASE)

static gh_status check_chunk(const gh_session *session, const char *which,
                             bool there, uint32_t chunk, uint32_t microbatch,
                             gh_error *err)
{
    if (!there) {
        return chunk == 0 && microbatch == 0
                   ? GH_OK
                   : gh_fail(err, GH_ERR_INVALID,
                             "gh_overlap_pair.%s_chunk is %u and its "
                             "microbatch %u, but there is no such chunk in "
                             "flags: set it, or zero both",
                             which, chunk, microbatch);
    }
    if (chunk >= session->plan.n_chunks) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_overlap_pair.%s_chunk is %u, but the model has %u "
                       "chunks",
                       which, chunk, session->plan.n_chunks);
    }
    if (microbatch >= GH_MAX_MICROBATCHES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair.%s_microbatch is %u: at most %u a step",
                       which, microbatch, GH_MAX_MICROBATCHES);
    }
    return GH_OK;
}

static gh_status check_chunks(const gh_session *session,
                              const gh_overlap_pair *pair, gh_error *err)
{
    gh_status status;

    if ((pair->flags & ~KNOWN_FLAGS) != 0 || (pair->flags & CHUNKS) == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair.flags is 0x%x: set GH_OVERLAP_FORWARD, "
                       "GH_OVERLAP_BACKWARD or both, and no unknown bit",
                       pair->flags);
    }
    status = check_chunk(session, "forward",
                         (pair->flags & GH_OVERLAP_FORWARD) != 0,
                         pair->forward_chunk, pair->forward_microbatch, err);
    if (status == GH_OK) {
        status = check_chunk(
            session, "backward", (pair->flags & GH_OVERLAP_BACKWARD) != 0,
            pair->backward_chunk, pair->backward_microbatch, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if ((pair->flags & CHUNKS) == CHUNKS &&
        pair->forward_chunk == pair->backward_chunk &&
        pair->forward_microbatch == pair->backward_microbatch) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair: forward and backward of chunk %u are "
                       "both of microbatch %u, whose backward needs its "
                       "forward: pair two microbatches, or run one after the "
                       "other",
                       pair->forward_chunk, pair->forward_microbatch);
    }
    return GH_OK;
}

static gh_status check_pair(const gh_session *session,
                            const gh_overlap_pair *pair, gh_error *err)
{
    if (pair->run_node == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair.run_node is NULL: the host issues the "
                       "nodes");
    }
    if (pair->comm != NULL && pair->comm == pair->compute) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_pair.comm is the compute stream %p, where "
                       "nothing overlaps: give another, or NULL for the "
                       "session's",
                       pair->comm);
    }
    return check_chunks(session, pair, err);
}

static gh_status check_state(const gh_session *session, gh_error *err)
{
    if (session->schedule == NULL) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_overlap_run: the plan was not made for it: open the "
                       "session with GH_SESSION_EP_OVERLAP");
    }
    if (gh_schedule_is_running(session->schedule)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_overlap_run: called by a node of a run: return from "
                       "run_node first");
    }
    if (gh_capture_is_open(session->capture)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_overlap_run: a pass is open: call gh_layer_exit or "
                       "gh_layer_cancel first");
    }
    return GH_OK;
}

gh_status gh_overlap_run(gh_session *session, const gh_overlap_pair *pair,
                         gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_overlap_pair, user);
    gh_overlap_pair ours;
    gh_status status;

    status = gh_session_check(session, "gh_overlap_run", err);
    if (status != GH_OK) {
        return status;
    }
    if (pair == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_overlap_run: pair is NULL");
    }
    status = gh_check_size("gh_overlap_pair", pair, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(pair, &ours, sizeof(ours));
    status = check_state(session, err);
    if (status == GH_OK) {
        status = check_pair(session, &ours, err);
    }
    return status == GH_OK ? gh_schedule_run(session->schedule, &ours, err)
                           : status;
}

gh_status gh_overlap_get_stats(const gh_session *session,
                               gh_overlap_stats *stats, gh_error *err)
{
    gh_overlap_stats ours = { 0 };
    gh_status status =
        gh_session_check_read(session, "gh_overlap_get_stats", err);

    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_overlap_get_stats: stats is NULL");
    }
    status = gh_check_size("gh_overlap_stats", stats,
                           GH_SIZE_THROUGH(gh_overlap_stats, comm_ns),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    if (session->schedule == NULL) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_overlap_get_stats: the session was opened without "
                       "GH_SESSION_EP_OVERLAP");
    }
    gh_schedule_stats(session->schedule, &ours);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
