/*
 * visits.h - visits of rendezvous, on streams and in graphs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_VISITS_H
#define SOFTCUDA_VISITS_H

#include "softcuda/collectives.h"

struct op;

/* Puts the call on the stream, or into the graph of its capture. */
CUresult visits_issue(CUstream stream, softcuda_call *call);

/* For whoever places a visit on a stream.  visits_begin() makes its begin, and
 * visits_end() its end, which knows the rendezvous.  Each is complete once it
 * was placed and handed to visits_begun() or visits_ended(). */
struct op *visits_begin(softcuda_call *call, CUcontext ctx,
                        softcuda_visit **visit_p);
void visits_begun(softcuda_visit *visit, struct op *op);
struct op *visits_end(softcuda_visit *visit, bool in_graph);
void visits_ended(softcuda_visit *visit, struct op *op);

softcuda_rendezvous *visits_rendezvous(const char *name, uint32_t places,
                                       softcuda_rendezvous_fn *run,
                                       softcuda_over_fn *over, void *user);
void visits_join(softcuda_rendezvous *rendezvous, uint32_t place,
                 softcuda_visit *visit);
void visits_fail(softcuda_rendezvous *rendezvous);

#endif
