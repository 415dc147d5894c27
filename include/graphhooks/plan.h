/*
 * graphhooks/plan.h - the segments that the host walks.
 *
 * The plan is made when a session opens and never changes.  Segments are
 * numbered from 0 through all chunks; each covers consecutive parts that are
 * treated alike.  A host runs the segments of a chunk in order, and in
 * reverse order backward.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_PLAN_H
#define GRAPHHOOKS_PLAN_H

#include <graphhooks/base.h>
#include <graphhooks/model.h>
#include <graphhooks/session.h>

GH_BEGIN_DECLS

/* How a segment is treated.  Values are frozen. */
typedef uint32_t gh_segment_mode;
enum {
    GH_SEGMENT_EAGER = 0,
    GH_SEGMENT_GRAPHED = 1
};

/**
 * One segment: from first_part of first_layer through last_part of
 * last_layer.  Set struct_size before the call that fills it.
 */
typedef struct gh_segment {
    uint32_t struct_size;
    uint32_t index; /* for gh_pass.segment */
    uint32_t chunk;
    gh_segment_mode mode;
    uint32_t first_layer, last_layer; /* as added to the model, from 0 */
    gh_part first_part, last_part;
    const char *reason; /* one sentence: why it is graphed or eager; lives
                           as long as the session */
} gh_segment;

/**
 * The number of segments in a chunk; 0 for a chunk the model does not have.
 * Blocks: never.  Since: 0.1.
 */
GH_API uint32_t gh_plan_segment_count(const gh_session *session,
                                      uint32_t chunk);

/**
 * Read one segment.
 *
 * @param         i        from 0 to gh_plan_segment_count() - 1
 * @param[in,out] segment  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_NOT_FOUND; GH_ERR_INVALID; GH_ERR_ABI;
 *         GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_plan_segment(const gh_session *session, uint32_t chunk,
                                 uint32_t i, gh_segment *segment,
                                 gh_error *err);

/* gh_plan_print() formats.  Values are frozen. */
typedef uint32_t gh_format;
enum {
    GH_FORMAT_TEXT = 0,
    GH_FORMAT_JSON = 1
};

/* Receives pieces of the text, in order; not NUL-terminated. */
typedef void gh_write_fn(void *user, const char *text, size_t bytes);

/**
 * Write the plan: every segment, what it covers, how it is treated and why.
 *
 * @return GH_OK; GH_ERR_INVALID.
 * Blocks: as `write` does.  Since: 0.1.
 */
GH_API gh_status gh_plan_print(const gh_session *session, gh_format format,
                               gh_write_fn *write, void *user, gh_error *err);

GH_END_DECLS

#endif
