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

/* The capture under way with this id, or NULL. */
struct capture *capture_find(uint64_t id);
void capture_invalidate(struct capture *capture);

/* Before a call that could stop the device or the program: is a capture
 * under way that does not allow it?  It is lost, then. */
CUresult capture_forbids_unsafe(void);
/* Waiting for a whole context breaks every capture in it, in any mode. */
CUresult capture_forbids_ctx(CUcontext ctx);
/* True when a blocking stream of the context is capturing. */
bool capture_implicit(CUcontext ctx, bool invalidate);
/* How many streams are capturing. */
uint64_t capture_streams(void);

/* The work becomes the stream's next node.  Takes the op. */
CUresult capture_add(CUstream stream, struct op *op);
/* A wait for an event that was recorded at these nodes of a capture. */
CUresult capture_join(CUstream stream, uint64_t id, const struct nodes *nodes);
/* The stream is being destroyed. */
void capture_leave(CUstream stream);

CUresult cap_exchange(CUstreamCaptureMode *mode);
CUresult cap_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult cap_end(CUstream stream, CUgraph *graph_p);

#endif
