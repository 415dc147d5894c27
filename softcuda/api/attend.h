/*
 * attend.h - visits of meetings, on streams and in graphs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ATTEND_H
#define SOFTCUDA_ATTEND_H

#include "softcuda/meeting.h"

struct op;

/* Puts the call on the stream, or into the graph of its capture. */
CUresult attend_issue(CUstream stream, softcuda_call *call);

/* For whoever places a visit on a stream.  attend_begin() makes its begin, and
 * attend_end() its end, which knows the meetings.  Each is complete once it was
 * placed and handed to attend_begun() or attend_ended(). */
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
