/*
 * memory.c - the calls of graphhooks/memory.h.
 *
 * A suspended session has its gate closed, so that every call that would use
 * its memory is refused where calls from functions of the host's are: the step
 * path has no test for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/memory.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"
#include "schedule/schedule.h"

gh_status gh_session_suspend(gh_session *session, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_session_suspend", err);

    if (status != GH_OK) {
        return status;
    }
    if (session->schedule != NULL &&
        gh_schedule_is_running(session->schedule)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_session_suspend: called by a node of "
                       "gh_overlap_run: return from run_node first");
    }
    status = gh_capture_suspend(session->capture, err);
    if (status == GH_OK) {
        session->suspended = true;
        session->gate.open = NULL;
    }
    return status;
}

gh_status gh_session_resume(gh_session *session, gh_error *err)
{
    gh_status status;

    if (session == NULL || session->capture == NULL || !session->suspended) {
        status = gh_session_check(session, "gh_session_resume", err);
        return status != GH_OK
                   ? status
                   : gh_fail(err, GH_ERR_STATE,
                             "gh_session_resume: the session is not suspended: "
                             "call gh_session_suspend first");
    }
    status = gh_capture_wake(session->capture, err);
    if (status == GH_OK) {
        session->suspended = false;
        session->gate.open = session->capture;
    }
    return status;
}

gh_status gh_memory_get_stats(const gh_session *session, gh_memory_stats *stats,
                              gh_error *err)
{
    gh_memory_stats ours = { 0 };
    gh_status status =
        gh_session_check_read(session, "gh_memory_get_stats", err);

    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_memory_get_stats: stats is NULL");
    }
    status = gh_check_size("gh_memory_stats", stats,
                           GH_SIZE_THROUGH(gh_memory_stats, forecast_bytes),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_capture_count_memory(session->capture, &ours);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
