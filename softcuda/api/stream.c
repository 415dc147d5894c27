/*
 * stream.c - streams: the legacy one, each thread's own, and the program's.
 *
 * A handle becomes a stream here, or an error code.  issue.c puts work on it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/stream.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/handle.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/soft.h"

#include <stdlib.h>

static uint32_t n_streams; /* streams with a number */

static CUstream make(CUcontext ctx, bool blocking, int priority)
{
    CUstream stream = calloc(1, sizeof(*stream));

    if (stream != NULL) {
        stream->ctx = ctx;
        stream->blocking = blocking;
        stream->priority = priority;
        stream->lane = lane_take();
    }
    return stream;
}

CUstream stream_legacy(CUcontext ctx)
{
    if (ctx->legacy == NULL) {
        ctx->legacy = make(ctx, true, 0);
        if (ctx->legacy != NULL) {
            ctx->legacy->is_default = true;
        }
    }
    return ctx->legacy;
}

static void link_stream(CUstream stream)
{
    stream->number = ++n_streams;
    stream->next = stream->ctx->streams;
    stream->ctx->streams = stream;
}

static CUresult per_thread(CUstream *stream_p)
{
    uint64_t thread = thread_self()->id;
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);
    CUstream stream;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    for (stream = ctx->streams; stream != NULL; stream = stream->next) {
        if (stream->thread == thread) {
            *stream_p = stream;
            return CUDA_SUCCESS;
        }
    }
    stream = make(ctx, true, 0);
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->is_default = true;
    stream->thread = thread;
    link_stream(stream);
    *stream_p = stream;
    return CUDA_SUCCESS;
}

static bool is_legacy(CUstream handle)
{
    return handle == NULL || handle == CU_STREAM_LEGACY;
}

/* Finds the stream of a handle, without asking whether captures allow its
 * use. */
static CUresult find(CUstream handle, CUstream *stream_p)
{
    CUcontext ctx;
    CUresult code;

    if (is_legacy(handle)) {
        code = ctx_current(&ctx);
        if (code == CUDA_SUCCESS) {
            *stream_p = ctx->legacy;
        }
        return code;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        return per_thread(stream_p);
    }
    if (!handle_is(handle, HANDLE_STREAM)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *stream_p = handle;
    return handle->ctx->sticky;
}

CUresult stream_use(CUstream handle, CUstream *stream_p)
{
    CUresult code = find(handle, stream_p);

    if (code == CUDA_SUCCESS && is_legacy(handle) &&
        capture_implicit((*stream_p)->ctx, true)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return code;
}

CUresult stream_issuable(CUstream handle, CUstream *stream_p)
{
    CUresult code = stream_use(handle, stream_p);

    if (code == CUDA_SUCCESS && (*stream_p)->capture != NULL &&
        (*stream_p)->capture->invalid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return code;
}

struct stamp stream_stamp(CUstream stream)
{
    return (struct stamp){ stream->vc, stream->lane, lane_last(stream->lane) };
}

bool stream_branches(CUstream stream, uint32_t n)
{
    uint32_t *larger;

    if (n <= stream->n_branches) {
        return true;
    }
    larger = realloc(stream->branches, n * sizeof(*larger));
    if (larger == NULL) {
        return false;
    }
    stream->branches = larger;
    while (stream->n_branches < n) {
        stream->branches[stream->n_branches++] = lane_take();
    }
    return true;
}

CUresult strm_create(CUstream *stream_p, unsigned int flags, int priority)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);
    CUstream stream;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (stream_p == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    stream = make(ctx, (flags & CU_STREAM_NON_BLOCKING) == 0, priority);
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!handle_add(stream, HANDLE_STREAM)) {
        lane_give(stream->lane);
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link_stream(stream);
    *stream_p = stream;
    return CUDA_SUCCESS;
}

/* Destroys a stream.  What was issued on it runs first. */
CUresult strm_destroy(CUstream stream)
{
    CUcontext ctx;
    struct stamp stamp;

    if (!handle_is(stream, HANDLE_STREAM)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    ctx = stream->ctx;
    engine_run_until(&stream->tail, 1);
    if (stream->capture != NULL) {
        capture_leave(stream);
    }

    stamp = stream_stamp(stream);
    vc_join(&ctx->gone, &stamp);
    if (stream->tail.end_ns > ctx->gone_ns) {
        ctx->gone_ns = stream->tail.end_ns;
    }
    if (stream->blocking) {
        vc_join(&ctx->legacy->vc, &stamp);
    }
    lane_give(stream->lane);
    for (uint32_t i = 0; i < stream->n_branches; i++) {
        lane_give(stream->branches[i]);
    }

    for (CUstream *s = &ctx->streams; *s != NULL; s = &(*s)->next) {
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    }
    handle_remove(stream);
    vc_drop(stream->vc);
    nodes_clear(&stream->deps);
    free(stream->branches);
    free(stream);
    return ctx->sticky;
}

/* The stream of a question, whose answer is to be written there. */
static CUresult asked(CUstream handle, const void *answer_p, CUstream *stream_p)
{
    const CUresult code = find(handle, stream_p);

    return code == CUDA_SUCCESS && answer_p == NULL ? CUDA_ERROR_INVALID_VALUE
                                                    : code;
}

CUresult strm_priority(CUstream handle, int *priority_p)
{
    CUstream stream;
    const CUresult code = asked(handle, priority_p, &stream);

    if (code == CUDA_SUCCESS) {
        *priority_p = stream->priority;
    }
    return code;
}

CUresult strm_ctx(CUstream handle, CUcontext *ctx_p)
{
    CUstream stream;
    const CUresult code = asked(handle, ctx_p, &stream);

    if (code == CUDA_SUCCESS) {
        *ctx_p = stream->ctx;
    }
    return code;
}

/* Asks for the state of a capture.  That takes no position in the stream, so
 * other captures survive it.  But the legacy stream has no answer while a
 * blocking stream captures. */
CUresult cap_status(CUstream handle, CUstreamCaptureStatus *status_p)
{
    CUstream stream;
    CUresult code = find(handle, &stream);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (status_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_legacy(handle) && capture_implicit(stream->ctx, false)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    *status_p = stream->capture == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
                : stream->capture->invalid
                    ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
