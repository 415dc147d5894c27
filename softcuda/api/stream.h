/*
 * stream.h - streams: the legacy one, each thread's own, and the program's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_STREAM_H
#define SOFTCUDA_STREAM_H

#include "driver/driver.h"
#include "softcuda/api/nodes.h"
#include "softcuda/engine/op.h"

#include <stdbool.h>
#include <stdint.h>

struct capture;

struct CUstream_st {
    CUcontext ctx;
    uint32_t number; /* in reports; 0: the legacy stream */
    bool blocking;
    bool is_default; /* legacy or per-thread: the program cannot destroy it */
    uint64_t thread; /* the owner of a per-thread stream */
    int priority;
    struct mark tail;

    struct vc *vc;
    uint64_t host_seen;
    uint32_t lane;
    uint32_t *branches; /* for branches of graphs, and for batches */
    uint32_t n_branches;

    struct capture *capture;
    struct nodes deps; /* while capturing: the nodes before the next one */
    CUstream next;
};

/* The context's legacy stream, which is made when first asked for. */
CUstream stream_legacy(CUcontext ctx);

/* Finds a stream for anything that has a position in it.  If a blocking stream
 * captures, the legacy stream would come after it, and that breaks the
 * capture. */
CUresult stream_use(CUstream handle, CUstream *stream_p);
/* Finds a stream for anything that may become a node.  Fails if its capture is
 * lost. */
CUresult stream_issuable(CUstream handle, CUstream *stream_p);
/* The last point of the stream. */
struct stamp stream_stamp(CUstream stream);

/* Makes that many lanes for work of the stream that runs side by side.  False:
 * there is no memory. */
bool stream_branches(CUstream stream, uint32_t n);

CUresult strm_create(CUstream *stream_p, unsigned int flags, int priority);
CUresult strm_destroy(CUstream stream);
CUresult strm_priority(CUstream stream, int *priority_p);
CUresult strm_ctx(CUstream stream, CUcontext *ctx_p);
CUresult cap_status(CUstream stream, CUstreamCaptureStatus *status_p);

#endif
