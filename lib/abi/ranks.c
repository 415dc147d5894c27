/*
 * ranks.c - the ranks of banks: checks the arguments, then lets lib/capture
 * open them, take them back or wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/ranks.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"
#include "ranks/ranks.h"

/* The session is checked, and must be between two passes. */
static gh_status check_closed(const gh_session *session, const char *call,
                              gh_error *err)
{
    gh_status status = gh_session_check(session, call, err);

    if (status == GH_OK && gh_capture_is_open(session->capture)) {
        return gh_fail(err, GH_ERR_STATE,
                       "%s: a pass is open: call gh_layer_exit or "
                       "gh_layer_cancel first",
                       call);
    }
    return status;
}

static gh_status check_ranks(const gh_ranks *ranks, gh_error *err)
{
    if (ranks->size == 0 || ranks->rank >= ranks->size ||
        ranks->size > UINT16_MAX) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_ranks: rank %u of %u: ranks count from 0, up to %u "
                       "of them",
                       ranks->rank, ranks->size, UINT16_MAX);
    }
    if (ranks->size > 1 && (ranks->comm == NULL) == (ranks->gather == NULL)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_ranks has %s: give one of them",
                       ranks->comm == NULL ? "neither comm nor gather"
                                           : "both comm and gather");
    }
    return GH_OK;
}

gh_status gh_ranks_set(gh_session *session, const gh_ranks *ranks,
                       gh_error *err)
{
    gh_ranks ours;
    gh_status status = check_closed(session, "gh_ranks_set", err);

    if (status != GH_OK) {
        return status;
    }
    if (ranks == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_ranks_set: ranks is NULL");
    }
    status = gh_check_size("gh_ranks", ranks, GH_SIZE_THROUGH(gh_ranks, abort),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(ranks, &ours, sizeof(ours));
    status = check_ranks(&ours, err);
    if (status != GH_OK) {
        return status;
    }
    if (session->nccl != NULL) {
        ours.nccl = session->nccl;
    } else if (ours.nccl == NULL) {
        ours.nccl = "nccl";
    }
    return gh_ranks_open(session->capture, &ours, err);
}

gh_status gh_ranks_clear(gh_session *session, uint32_t bank, gh_error *err)
{
    gh_status status = check_closed(session, "gh_ranks_clear", err);

    return status == GH_OK
               ? gh_ranks_leave(session->capture, bank, err)
               : status;
}

gh_status gh_ranks_abort(gh_session *session, const char *why, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_ranks_abort", err);

    return status == GH_OK
               ? gh_capture_abort_ranks(
                     session->capture,
                     why != NULL ? why : "the host has given the ranks up", err)
               : status;
}

gh_status gh_ranks_wait(gh_session *session, void *stream, gh_error *err)
{
    gh_status status = check_closed(session, "gh_ranks_wait", err);

    return status == GH_OK
               ? gh_ranks_wait_stream(session->capture, stream, err)
               : status;
}
