/*
 * event.c - events: a point in a stream, or in a graph while capturing.
 *
 * An event recorded in a capture names nodes of that capture and nothing else.
 * It lets other streams join the capture, and is of no use afterwards until it
 * is recorded again.  An external record or wait is itself a node, and stands
 * for the event outside of the graph, anew at each launch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/event.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/handle.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"

#include <stdlib.h>

static void event_free(struct shared *shared)
{
    CUevent event = (CUevent)(void *)shared;

    stamp_clear(&event->at);
    nodes_clear(&event->nodes);
    free(event);
}

void event_set(CUevent event, const struct mark *mark,
               const struct stamp *stamp)
{
    event->state = EVENT_RECORDED;
    event->mark = *mark;
    stamp_set(&event->at, stamp);
    nodes_clear(&event->nodes);
}

CUresult ev_create(CUevent *event_p, unsigned int flags)
{
    const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);
    CUevent event;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (event_p == NULL || (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event = calloc(1, sizeof(*event));
    if (event == NULL || !handle_add(event, HANDLE_EVENT)) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->shared = (struct shared){ 1, event_free };
    event->flags = flags;
    event->ctx = ctx;
    *event_p = event;
    return CUDA_SUCCESS;
}

/* Whatever waits for the event goes on waiting for what it stood for. */
CUresult ev_destroy(CUevent event)
{
    if (!handle_is(event, HANDLE_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    handle_remove(event);
    shared_drop(&event->shared);
    return CUDA_SUCCESS;
}

static struct op *event_op(CUstream stream, CUevent event, enum work_kind kind)
{
    struct op *op = op_new();

    op->own.kind = kind;
    op->own.ctx = stream->ctx;
    op->own.u.event = event;
    op->own.kept = shared_ref(&event->shared);
    return op;
}

static CUresult record_captured(CUevent event, CUstream stream)
{
    if (!nodes_copy(&event->nodes, &stream->deps)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->state = EVENT_CAPTURED;
    event->capture = stream->capture->id;
    stamp_clear(&event->at);
    return CUDA_SUCCESS;
}

CUresult ev_record(CUevent event, CUstream handle, unsigned int flags)
{
    bool external = flags == CU_EVENT_RECORD_EXTERNAL;
    CUstream stream;
    CUresult code;
    struct op *op;
    struct stamp stamp;
    struct mark mark;

    if (!handle_is(event, HANDLE_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    code = stream_issuable(handle, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (flags != CU_EVENT_RECORD_DEFAULT && !external) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (event->ctx != stream->ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture == NULL && external) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (stream->capture != NULL && !external) {
        return record_captured(event, stream);
    }

    op = event_op(stream, event, WORK_RECORD);
    if (stream->capture != NULL) {
        return capture_add(stream, op);
    }
    stream_place(stream, op);
    op_tell(op, &event->mark);
    stamp = op->at;
    vc_ref(stamp.vc);
    mark = op_submit(op);
    stream->tail = mark;
    event_set(event, &mark, &stamp);
    vc_drop(stamp.vc);
    return CUDA_SUCCESS;
}

static CUresult wait_recorded(CUstream stream, CUevent event)
{
    struct op *op = op_new();

    op_after(op, &event->mark);
    vc_join(&stream->vc, &event->at);
    stream_place(stream, op);
    stream->tail = op_submit(op);
    return CUDA_SUCCESS;
}

static CUresult wait_external(CUstream stream, CUevent event)
{
    if (stream->capture == NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    return capture_add(stream, event_op(stream, event, WORK_WAIT));
}

CUresult strm_wait(CUstream handle, CUevent event, unsigned int flags)
{
    CUstream stream;
    CUresult code;

    /* SOFTCUDA_DROP_WAIT drops this wait on purpose, and nobody is told. */
    if (++soft.waits == soft.set.drop_wait) {
        return CUDA_SUCCESS;
    }
    if (!handle_is(event, HANDLE_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    code = stream_issuable(handle, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
        return wait_external(stream, event);
    }
    if (flags != CU_EVENT_WAIT_DEFAULT) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    switch (event->state) {
    case EVENT_NEVER:
        return CUDA_SUCCESS;
    case EVENT_CAPTURED:
        return capture_join(stream, event->capture, &event->nodes);
    case EVENT_RECORDED:
        break;
    }
    if (stream->capture != NULL) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    return wait_recorded(stream, event);
}

/* Whether the host may ask for or wait for the event. */
static CUresult may_wait(CUevent event)
{
    if (!handle_is(event, HANDLE_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->state == EVENT_CAPTURED) {
        struct capture *capture = capture_find(event->capture);

        if (capture == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        capture_invalidate(capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (event->ctx->sticky != CUDA_SUCCESS) {
        return event->ctx->sticky;
    }
    return capture_forbids_unsafe();
}

static CUresult waited(CUevent event)
{
    host_join(&event->at);
    host_until(event->mark.end_ns);
    return event->ctx->sticky;
}

CUresult ev_query(CUevent event)
{
    CUresult code = may_wait(event);

    if (code != CUDA_SUCCESS || event->state == EVENT_NEVER) {
        return code;
    }
    if (!engine_poll(&event->mark, 1)) {
        return CUDA_ERROR_NOT_READY;
    }
    return waited(event);
}

CUresult ev_sync(CUevent event)
{
    CUresult code = may_wait(event);

    if (code != CUDA_SUCCESS || event->state == EVENT_NEVER) {
        return code;
    }
    engine_run_until(&event->mark, 1);
    return waited(event);
}

static CUresult timed(CUevent event)
{
    if (event->state == EVENT_CAPTURED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (event->state == EVENT_NEVER ||
        (event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

CUresult ev_elapsed(float *ms_p, CUevent start, CUevent end)
{
    CUresult code;

    if (!handle_is(start, HANDLE_EVENT) || !handle_is(end, HANDLE_EVENT)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    code = timed(start);
    code = code != CUDA_SUCCESS ? code : timed(end);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (ms_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mark_pending(&start->mark) || mark_pending(&end->mark)) {
        return CUDA_ERROR_NOT_READY;
    }
    *ms_p =
        (float)(((double)end->mark.end_ns - (double)start->mark.end_ns) / 1e6);
    return CUDA_SUCCESS;
}
