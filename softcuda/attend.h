/*
 * attend.h - visits of meetings, on streams and in graphs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ATTEND_H
#define SOFTCUDA_ATTEND_H

#include "softcuda/meeting.h"

struct op;

/* Puts the call on the stream, or in its graph. */
CUresult attend_issue(CUstream stream, softcuda_call *call);

/* For whoever places a visit: its begin; then, once that has a place, its
 * end, which knows of the meetings.  Both are complete when they have been
 * placed and seen. */
struct op *attend_begin(softcuda_call *call, CUcontext ctx,
                        softcuda_visit **visit_p);
void attend_begun(softcuda_visit *visit, struct op *op);
struct op *attend_end(softcuda_visit *visit, bool in_graph);
void attend_ended(softcuda_visit *visit, struct op *op);

softcuda_meeting *attend_meeting(const char *name, uint32_t places,
                                 softcuda_meeting_fn *run,
                                 softcuda_over_fn *over, void *user);
void attend_join(softcuda_meeting *meeting, uint32_t place,
                 softcuda_visit *visit);
void attend_fail(softcuda_meeting *meeting);

#endif
