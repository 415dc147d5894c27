/*
 * measure.h - how long copies take, and how long the compute waits for them:
 * events with a time, in the few steps that are measured.
 *
 * With fraction=auto the step by which is decided is measured; where the log is
 * at info, one later step is, for gh_offload_stats.  In all others
 * gh_offload.measure is NULL, and nothing is created or recorded.  What fails
 * here ends the measurement, and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_MEASURE_H
#define GH_OFFLOAD_MEASURE_H

#include "offload/groups/state.h"

/* A point of a pass.  The wait for a buffer is between an ASKED and the point
 * after it. */
enum gh_point {
    GH_POINT_SAVE_ASKED,
    GH_POINT_SAVE,
    GH_POINT_COMMIT,
    GH_POINT_LOAD_ASKED,
    GH_POINT_LOAD,
    GH_POINT_RELEASE,
    GH_POINT_LAUNCH /* of a graph that waits somewhere in it */
};

/* Begins to measure.  Without memory nothing is measured. */
void gh_measure_begin(struct gh_offload *offload);
/* Ends the measurement, which is kept until it is read. */
void gh_measure_end(struct gh_offload *offload);
void gh_measure_free(struct gh_offload *offload);

void gh_measure_point(struct gh_offload *offload, enum gh_point point,
                      const struct gh_instance *instance, void *stream);
/* Called around the copies of an instance, on their stream.  `buffer` is the
 * one on the device; NULL: the copies read the host's own memory. */
void gh_measure_copy_begin(struct gh_offload *offload,
                           const struct gh_instance *instance, bool out);
void gh_measure_copy_end(struct gh_offload *offload,
                         struct gh_ring_buffer *buffer, bool out);
/* The launch that was the last point waits for the last copy of the buffer, to
 * write the group there or to read it. */
void gh_measure_wait(struct gh_offload *offload,
                     const struct gh_ring_buffer *buffer,
                     const struct gh_group *group, bool saves);

static inline bool gh_is_measured(const struct gh_offload *offload)
{
    return offload->measure != NULL;
}

/* Writes the times to the profile, whose groups are in the order of the
 * table.  The caller frees the marks.  Waits for the device.  False: nothing
 * is known. */
bool gh_measure_read(struct gh_offload *offload, struct gh_profile *profile,
                     struct gh_mark **marks_p);
/* The group that was waited for longest in the step, how long, and how much of
 * that at its saves; NULL: none, or it is not known. */
const struct gh_group *gh_measure_worst(const struct gh_offload *offload,
                                        double *ns, double *save_ns);
/* Whether the device has waited for the host.  Replays then leave less time for
 * copies than was measured. */
bool gh_measure_was_idle(const struct gh_offload *offload);
/* Adds the times of a step that is over to the statistics.  False: the device
 * has not finished it. */
bool gh_measure_sum(const struct gh_offload *offload, gh_offload_stats *stats);

#endif
