/*
 * capture.c - stream capture: who is in it, what breaks it, how it ends.
 *
 * A capture begins on its origin stream; other streams join it by waiting for
 * an event recorded in it.  Work issued to a stream of a capture becomes a
 * node of the capture's graph.  The rules and codes are the driver's own, and
 * tests/driver holds both against one list.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/capture.h"

#include "softcuda/api/graph.h"
#include "softcuda/api/handle.h"
#include "softcuda/api/nodes.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/soft.h"

#include <stdlib.h>

static struct capture *captures;
static uint64_t n_captures;

struct capture *capture_find(uint64_t id)
{
    struct capture *capture = captures;

    while (capture != NULL && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

void capture_invalidate(struct capture *capture)
{
    capture->invalid = true;
}

CUresult capture_forbids_unsafe(void)
{
    const struct thread_state *self = thread_self();
    CUresult code = CUDA_SUCCESS;

    if (self->mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    for (struct capture *c = captures; c != NULL; c = c->next) {
        bool mine =
            c->thread == self->id && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool everyones = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                         self->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (mine || everyones) {
            capture_invalidate(c);
            code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return code;
}

CUresult capture_forbids_ctx(CUcontext ctx)
{
    CUresult code = CUDA_SUCCESS;

    for (struct capture *c = captures; c != NULL; c = c->next) {
        if (c->origin->ctx == ctx) {
            capture_invalidate(c);
            code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return code;
}

bool capture_implicit(CUcontext ctx, bool invalidate)
{
    bool found = false;

    if (captures == NULL) {
        return false;
    }
    for (CUstream s = ctx->streams; s != NULL; s = s->next) {
        if (s->blocking && s->capture != NULL) {
            found = true;
            if (invalidate) {
                capture_invalidate(s->capture);
            }
        }
    }
    return found;
}

uint64_t capture_streams(void)
{
    uint64_t n = 0;

    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        for (CUstream s = contexts[i].streams; s != NULL; s = s->next) {
            n += s->capture != NULL;
        }
    }
    return n;
}

CUresult capture_add(CUstream stream, struct op *op)
{
    CUgraph graph = stream->capture->graph;
    CUresult code = CUDA_SUCCESS;

    if (graph_add(graph, &op->own, stream->priority, &stream->deps)) {
        stream->deps.n = 0;
    }
    if (stream->deps.n != 0 || !nodes_add(&stream->deps, graph->n - 1)) {
        capture_invalidate(stream->capture);
        code = CUDA_ERROR_OUT_OF_MEMORY;
    }
    op_discard(op);
    return code;
}

CUresult capture_join(CUstream stream, uint64_t id, const struct nodes *nodes)
{
    struct capture *capture = capture_find(id);

    if (capture == NULL) {
        return CUDA_ERROR_INVALID_VALUE; /* that capture is over */
    }
    if (stream == stream->ctx->legacy) {
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->capture != NULL && stream->capture != capture) {
        capture_invalidate(capture);
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }

    if (stream->capture == NULL) {
        stream->capture = capture;
        stream->deps.n = 0;
    }
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (!nodes_add(&stream->deps, nodes->v[i])) {
            capture_invalidate(capture);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

/* Any number is taken as a mode, and NULL crashes, as with a driver. */
CUresult cap_exchange(CUstreamCaptureMode *mode)
{
    struct thread_state *self = thread_self();
    CUstreamCaptureMode old = self->mode;

    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    self->mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

CUresult cap_begin(CUstream handle, CUstreamCaptureMode mode)
{
    struct capture *capture;
    CUstream stream;
    CUresult code;

    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    code = stream_use(handle, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if ((int)mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (int)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture != NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }

    capture = calloc(1, sizeof(*capture));
    if (capture == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph = calloc(1, sizeof(*capture->graph));
    if (capture->graph == NULL) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->id = ++n_captures;
    capture->thread = thread_self()->id;
    capture->mode = mode;
    capture->origin = stream;
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    stream->deps.n = 0;
    return CUDA_SUCCESS;
}

/* Ends a capture: releases every stream, and lets its events name nothing.
 * Returns the graph. */
static CUgraph terminate(struct capture *capture)
{
    CUgraph graph = capture->graph;

    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        for (CUstream s = contexts[i].streams; s != NULL; s = s->next) {
            if (s->capture == capture) {
                s->capture = NULL;
                s->deps.n = 0;
            }
        }
    }
    for (struct capture **c = &captures; *c != NULL; c = &(*c)->next) {
        if (*c == capture) {
            *c = capture->next;
            break;
        }
    }
    free(capture);
    return graph;
}

void capture_leave(CUstream stream)
{
    if (stream->capture->origin == stream) {
        graph_free(terminate(stream->capture));
    } else {
        stream->capture = NULL;
    }
}

/* Whether the origin stream comes after everything that was captured.  A stream
 * that was forked and got no work need not be joined. */
static bool is_joined(const struct capture *capture)
{
    const struct nodes *last = &capture->origin->deps;
    uint32_t leaves = 0, reached = 0;

    for (uint32_t i = 0; i < capture->graph->n; i++) {
        leaves += capture->graph->nodes[i].n_after == 0;
    }
    for (uint32_t i = 0; i < last->n; i++) {
        reached += capture->graph->nodes[last->v[i]].n_after == 0;
    }
    return reached == leaves;
}

CUresult cap_end(CUstream handle, CUgraph *graph_p)
{
    struct capture *capture;
    CUstream stream;
    CUresult code;
    CUgraph graph;

    if (graph_p != NULL) {
        *graph_p = NULL;
    }
    code = stream_use(handle, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    capture = stream->capture;
    if (capture == NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (graph_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (capture->origin != stream) {
        capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }

    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != thread_self()->id) {
        code = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else if (capture->invalid) {
        code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    graph = terminate(capture);
    if (code == CUDA_SUCCESS && !handle_add(graph, HANDLE_GRAPH)) {
        code = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (code != CUDA_SUCCESS) {
        graph_free(graph);
        return code;
    }
    *graph_p = graph;
    return CUDA_SUCCESS;
}
