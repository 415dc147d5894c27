/*
 * stats.c - what a session has counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/session.h"

#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"

#include <string.h>

/* ---- gh_stats ------------------------------------------------------------ */

/* In 0.1 and 0.2 the counts by reason were in its middle.  No later gh_stats
 * may have that size, so a caller of theirs reads no other number for its own. */
#define SIZE_OF_0_2 248
_Static_assert(sizeof(gh_stats) != SIZE_OF_0_2, "taken by gh_stats of 0.2");

gh_status gh_session_stats(const gh_session *session, gh_stats *stats,
                           gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_stats, check_failures);
    gh_stats ours;
    gh_status status;

    status = gh_session_check_read(session, "gh_session_stats", err);
    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_session_stats: stats is NULL");
    }
    if (stats->struct_size == SIZE_OF_0_2) {
        return gh_fail(err, GH_ERR_ABI,
                       "gh_stats.struct_size is %d, which is that of 0.2: "
                       "compile the host with headers of 0.3 or later",
                       SIZE_OF_0_2);
    }
    status = gh_check_size("gh_stats", stats, least, sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_capture_stats(session->capture, &ours);
    ours.check_failures += gh_session_unwritten(session);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}

/* ---- reasons ------------------------------------------------------------ */

gh_status gh_session_reasons(const gh_session *session, gh_reason reason,
                             uint64_t *count_p, gh_error *err)
{
    gh_status status;

    status = gh_session_check_read(session, "gh_session_reasons", err);
    if (status != GH_OK) {
        return status;
    }
    if (count_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_reasons: count_p is NULL");
    }
    if (reason >= GH_REASONS) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_session_reasons: there is no reason %u", reason);
    }
    *count_p = gh_capture_eager(session->capture, reason);
    return GH_OK;
}
