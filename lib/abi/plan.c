/*
 * plan.c - hands the plan to the host.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/session.h"

#include "base/error.h"
#include "base/size.h"

uint32_t gh_plan_segment_count(const gh_session *session, uint32_t chunk)
{
    if (gh_session_check(session, "gh_plan_segment_count", NULL) != GH_OK ||
        chunk >= session->plan.n_chunks) {
        return 0;
    }
    return session->plan.chunk_start[chunk + 1] -
           session->plan.chunk_start[chunk];
}

gh_status gh_plan_segment(const gh_session *session, uint32_t chunk, uint32_t i,
                          gh_segment *segment, gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_segment, reason);
    uint32_t count = gh_plan_segment_count(session, chunk);
    gh_status status;

    status = gh_session_check(session, "gh_plan_segment", err);
    if (status != GH_OK) {
        return status;
    }
    if (segment == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_plan_segment: segment is NULL");
    }
    status = gh_check_size("gh_segment", segment, least, sizeof(*segment), err);
    if (status != GH_OK) {
        return status;
    }
    if (i >= count) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_plan_segment: chunk %u has %u segments, there is "
                       "no number %u",
                       chunk, count, i);
    }
    i += session->plan.chunk_start[chunk];
    gh_give_struct(segment, &session->plan.segments[i], sizeof(*segment));
    return GH_OK;
}

gh_status gh_plan_print(const gh_session *session, gh_format format,
                        gh_write_fn *write, void *user, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_plan_print", err);

    if (status != GH_OK) {
        return status;
    }
    if (write == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_plan_print: write is NULL");
    }
    if (format != GH_FORMAT_TEXT && format != GH_FORMAT_JSON) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_plan_print: format %u is neither GH_FORMAT_TEXT "
                       "nor GH_FORMAT_JSON",
                       format);
    }
    gh_plan_write(&session->plan, format, write, user);
    return GH_OK;
}
