/*
 * visits.h - visits of meetings, on streams and in graphs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_VISITS_H
#define SOFTCUDA_VISITS_H

#include "softcuda/meeting.h"

struct op;

/* Puts the call on the stream, or into the graph of its capture. */
CUresult visits_issue(CUstream stream, softcuda_call *call);

/* For whoever places a visit on a stream.  visits_begin() makes its begin, and
 * visits_end() its end, which knows the meetings.  Each is complete once it was
 * placed and handed to visits_begun() or visits_ended(). */
struct op *visits_begin(softcuda_call *call, CUcontext ctx,
                        softcuda_visit **visit_p);
void visits_begun(softcuda_visit *visit, struct op *op);
struct op *visits_end(softcuda_visit *visit, bool in_graph);
void visits_ended(softcuda_visit *visit, struct op *op);

softcuda_meeting *visits_meeting(const char *name, uint32_t places,
                                 softcuda_meeting_fn *run,
                                 softcuda_over_fn *over, void *user);
void visits_join(softcuda_meeting *meeting, uint32_t place,
                 softcuda_visit *visit);
void visits_fail(softcuda_meeting *meeting);

#endif
