/*
 * stream.h - streams: the legacy one, each thread's own, and the program's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_STREAM_H
#define SOFTCUDA_STREAM_H

#include "driver/driver.h"
#include "softcuda/nodes.h"
#include "softcuda/op.h"

#include <stdbool.h>
#include <stdint.h>

struct capture;

struct CUstream_st {
    CUcontext ctx;
    uint32_t number; /* 0: the legacy stream; in reports */
    bool blocking;
    bool is_default; /* legacy or per-thread: not the program's to destroy */
    uint64_t thread; /* whose per-thread stream this is */
    int priority;
    struct mark tail;

    struct vc *vc;
    uint64_t host_seen;
    uint32_t lane;
    uint32_t *branches; /* lanes of branches of graphs, and of batches */
    uint32_t n_branches;

    struct capture *capture;
    struct nodes deps; /* while capturing: what the next node comes after */
    CUstream next;
};

/* The context's legacy stream, made when it is first asked for. */
CUstream stream_legacy(CUcontext ctx);

/* For anything that orders itself by the stream: the legacy stream would
 * come after a blocking stream that captures, and that breaks the capture. */
CUresult stream_use(CUstream handle, CUstream *stream_p);
/* For anything that may become a node: not in a capture that is lost. */
CUresult stream_issuable(CUstream handle, CUstream *stream_p);
/* The last point of the stream. */
struct stamp stream_stamp(CUstream stream);

/* As many lanes for work of the stream that runs side by side; false when
 * there is no memory. */
bool stream_branches(CUstream stream, uint32_t n);

CUresult strm_create(CUstream *stream_p, unsigned int flags, int priority);
CUresult strm_destroy(CUstream stream);
CUresult strm_priority(CUstream stream, int *priority_p);
CUresult strm_ctx(CUstream stream, CUcontext *ctx_p);
CUresult cap_status(CUstream stream, CUstreamCaptureStatus *status_p);

#endif
