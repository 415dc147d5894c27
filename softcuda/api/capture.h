/*
 * capture.h - stream capture: who is in it, what breaks it, how it ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CAPTURE_H
#define SOFTCUDA_CAPTURE_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct nodes;
struct op;

struct capture {
    uint64_t id;
    uint64_t thread;
    CUstreamCaptureMode mode;
    bool invalid;
    CUstream origin;
    CUgraph graph;
    struct capture *next;
};

/* The running capture with this id, or NULL. */
struct capture *capture_find(uint64_t id);
void capture_invalidate(struct capture *capture);

/* Asks before a call that could stop the device or the program.  If a running
 * capture does not allow it, this returns an error, and the capture is lost. */
CUresult capture_forbids_unsafe(void);
/* Asks before a wait for a whole context.  That breaks every capture in it, in
 * any mode. */
CUresult capture_forbids_ctx(CUcontext ctx);
/* Whether a blocking stream of the context is capturing. */
bool capture_implicit(CUcontext ctx, bool invalidate);
/* How many streams are capturing. */
uint64_t capture_streams(void);

/* Makes the work the stream's next node.  Takes the op. */
CUresult capture_add(CUstream stream, struct op *op);
/* Lets the stream wait for an event that was recorded at these nodes of a
 * capture. */
CUresult capture_join(CUstream stream, uint64_t id, const struct nodes *nodes);
/* Called when the stream is destroyed. */
void capture_leave(CUstream stream);

CUresult cap_exchange(CUstreamCaptureMode *mode);
CUresult cap_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult cap_end(CUstream stream, CUgraph *graph_p);

#endif
