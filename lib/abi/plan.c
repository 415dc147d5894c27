/*
 * plan.c - hands the plan to the host.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "abi/services.h"
#include "abi/session.h"

#include "base/error.h"
#include "base/size.h"
#include "pipeline/pipeline.h"

uint32_t gh_plan_segment_count(const gh_session *session, uint32_t chunk)
{
    if (gh_session_check_read(session, "gh_plan_segment_count", NULL) !=
            GH_OK ||
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

    status = gh_session_check_read(session, "gh_plan_segment", err);
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
    if (chunk >= session->plan.n_chunks) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_plan_segment: chunk is %u, and the plan has %u",
                       chunk, session->plan.n_chunks);
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
    gh_status status = gh_session_check_read(session, "gh_plan_print", err);

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
    /* Every session is one that gh_session_open() has allocated. */
    gh_session_write_plan((gh_session *)(uintptr_t)session, format, write,
                          user);
    return GH_OK;
}

static bool has_side(const gh_session *session, uint32_t segment, gh_side side)
{
    return segment < session->plan.n_segments &&
           (side == GH_SIDE_IN || side == GH_SIDE_OUT);
}

uint32_t gh_plan_border_count(const gh_session *session, uint32_t segment,
                              gh_side side)
{
    gh_border borders[GH_TENSOR_COUNT];

    if (gh_session_check_read(session, "gh_plan_border_count", NULL) != GH_OK ||
        !has_side(session, segment, side)) {
        return 0;
    }
    return gh_plan_borders(&session->plan, segment, side, borders);
}

gh_status gh_plan_border(const gh_session *session, uint32_t segment,
                         gh_side side, uint32_t i, gh_border *border,
                         gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_border, shape);
    gh_border borders[GH_TENSOR_COUNT];
    gh_status status;
    uint32_t n;

    status = gh_session_check_read(session, "gh_plan_border", err);
    if (status != GH_OK) {
        return status;
    }
    if (border == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_plan_border: border is NULL");
    }
    status = gh_check_size("gh_border", border, least, sizeof(*border), err);
    if (status != GH_OK) {
        return status;
    }
    if (!has_side(session, segment, side)) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_plan_border: segment %u, side %u: the plan has %u "
                       "segments, each with GH_SIDE_IN and GH_SIDE_OUT",
                       segment, side, session->plan.n_segments);
    }
    n = gh_plan_borders(&session->plan, segment, side, borders);
    if (i >= n) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "gh_plan_border: %u tensors cross that side of segment "
                       "%u, there is no number %u",
                       n, segment, i);
    }
    gh_give_struct(border, &borders[i], sizeof(*border));
    return GH_OK;
}

static gh_status check_pipeline(const gh_pipeline_desc *desc, gh_error *err)
{
    if (desc->stages == 0 || desc->stages > GH_PIPELINE_STAGES ||
        desc->stage >= desc->stages || desc->chunks == 0 ||
        desc->chunks > GH_PIPELINE_CHUNKS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_plan_slots: stage %u of %u stages with %u chunks: "
                       "give 1 to %u stages, one of them, and 1 to %u chunks",
                       desc->stage, desc->stages, desc->chunks,
                       GH_PIPELINE_STAGES, GH_PIPELINE_CHUNKS);
    }
    return GH_OK;
}

gh_status gh_plan_slots(const gh_pipeline_desc *given, uint32_t *slots,
                        gh_error *err)
{
    gh_pipeline_desc desc;
    gh_status status;

    if (given == NULL || slots == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_plan_slots: %s is NULL",
                       given == NULL ? "desc" : "slots");
    }
    status = gh_check_size("gh_pipeline_desc", given,
                           GH_SIZE_THROUGH(gh_pipeline_desc, ahead),
                           sizeof(desc), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, &desc, sizeof(desc));
    status = check_pipeline(&desc, err);
    if (status == GH_OK) {
        const struct gh_interleaving how = {
            .n_stages = desc.stages,
            .n_chunks = desc.chunks,
            .group = desc.group != 0 ? desc.group : desc.stages,
            .ahead = desc.ahead,
        };

        status = gh_pipeline_slots(&how, desc.stage, slots, err);
    }
    return status;
}
