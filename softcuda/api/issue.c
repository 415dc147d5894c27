/*
 * issue.c - puts work on streams, and waits for it.
 *
 * A stream is a line of operations.  The legacy stream also comes after
 * everything in the blocking streams of its context, and they come after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/issue.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/wait.h"

#include <stdlib.h>

static void after_stream(CUstream stream, struct op *op, CUstream before)
{
    struct stamp stamp = stream_stamp(before);

    op_after(op, &before->tail);
    vc_join(&stream->vc, &stamp);
}

void stream_own(CUstream stream, struct op *op)
{
    op->stream = stream->number;
    op_tell(op, &stream->tail);
}

void stream_place(CUstream stream, struct op *op)
{
    CUcontext ctx = stream->ctx;

    stream_own(stream, op);
    op_after(op, &stream->tail);
    if (stream == ctx->legacy) {
        for (CUstream s = ctx->streams; s != NULL; s = s->next) {
            if (s->blocking) {
                after_stream(stream, op, s);
            }
        }
    } else if (stream->blocking) {
        after_stream(stream, op, ctx->legacy);
    }

    if (stream->host_seen != soft.host->version && soft.host->vc != NULL) {
        /* The host has no lane, so take over everything it knows. */
        struct stamp host = { soft.host->vc, 0, 0 };

        for (; host.lane < host.vc->n; host.lane++) {
            host.epoch = host.vc->t[host.lane];
            if (host.lane != stream->lane) {
                vc_join(&stream->vc, &host);
            }
        }
        stream->host_seen = soft.host->version;
    }
    op->at.lane = stream->lane;
    op->at.epoch = lane_next(stream->lane);
    op->at.vc = vc_ref(stream->vc);
}

CUresult stream_issue(CUstream stream, struct op *op)
{
    if (stream->capture != NULL) {
        return capture_add(stream, op);
    }
    soft.prioritized += op->work->kind == WORK_KERNEL && stream->priority < 0;
    stream_place(stream, op);
    stream->tail = op_submit(op);
    return CUDA_SUCCESS;
}

void stream_wait_host(CUstream stream)
{
    struct stamp stamp = stream_stamp(stream);

    host_join(&stamp);
    host_until(stream->tail.end_ns);
}

static void join_gone(CUcontext ctx)
{
    struct stamp gone = { ctx->gone, 0, 0 };

    if (ctx->gone != NULL) {
        for (gone.lane = 0; gone.lane < ctx->gone->n; gone.lane++) {
            gone.epoch = ctx->gone->t[gone.lane];
            host_join(&gone);
        }
    }
    host_until(ctx->gone_ns);
}

/* All streams of a context, or those that the legacy stream comes after. */
enum which {
    ALL_STREAMS,
    LEGACY_AND_BLOCKING
};

/* The next stream of the context.  The legacy stream is the first. */
static CUstream next_stream(CUcontext ctx, CUstream stream, enum which which)
{
    do {
        stream = stream == ctx->legacy ? ctx->streams : stream->next;
    } while (which == LEGACY_AND_BLOCKING && stream != NULL &&
             !stream->blocking);
    return stream;
}

#define EACH_STREAM(s, ctx, which) \
    CUstream s = (ctx)->legacy; \
    s != NULL; \
    s = next_stream(ctx, s, which)

/* The ends of streams at the time of the call.  While one of them is waited
 * for, streams go on, and others are made and destroyed. */
struct ends {
    struct mark *marks;
    struct stamp *at;
    uint32_t n;
};

static struct ends ends_of(CUcontext ctx, enum which which)
{
    struct ends ends = { NULL, NULL, 0 };
    uint32_t marks_room = 0, at_room = 0;

    for (EACH_STREAM(s, ctx, which)) {
        if (ends.n == marks_room) {
            ends.marks = op_grow(ends.marks, &marks_room, sizeof(*ends.marks));
            ends.at = op_grow(ends.at, &at_room, sizeof(*ends.at));
        }
        ends.marks[ends.n] = s->tail;
        ends.at[ends.n] = stream_stamp(s);
        vc_ref(ends.at[ends.n++].vc);
    }
    return ends;
}

static void ends_clear(struct ends *ends)
{
    for (uint32_t i = 0; i < ends->n; i++) {
        vc_drop(ends->at[i].vc);
    }
    free(ends->marks);
    free(ends->at);
}

/* Notes that the host has waited for these ends. */
static void join_ends(const struct ends *ends, CUcontext ctx, enum which which)
{
    for (uint32_t i = 0; i < ends->n; i++) {
        host_join(&ends->at[i]);
    }
    for (EACH_STREAM(s, ctx, which)) {
        host_until(s->tail.end_ns);
    }
}

static void wait_streams(CUcontext ctx, enum which which)
{
    struct ends ends = ends_of(ctx, which);

    engine_run_until(ends.marks, ends.n);
    join_ends(&ends, ctx, which);
    ends_clear(&ends);
}

/* Asks without issuing anything.  Otherwise a program that polls would never
 * see the end. */
static bool poll_streams(CUcontext ctx, enum which which)
{
    struct ends ends = ends_of(ctx, which);
    const bool done = engine_poll(ends.marks, ends.n);

    if (done) {
        join_ends(&ends, ctx, which);
    }
    ends_clear(&ends);
    return done;
}

void stream_run_ctx(CUcontext ctx)
{
    if (ctx->legacy == NULL) {
        return;
    }
    wait_streams(ctx, ALL_STREAMS);
    join_gone(ctx);
}

void stream_run_others(CUcontext ctx)
{
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        struct ends ends;

        if (&contexts[i] == ctx || contexts[i].legacy == NULL) {
            continue;
        }
        ends = ends_of(&contexts[i], ALL_STREAMS);
        engine_run_until(ends.marks, ends.n);
        ends_clear(&ends);
    }
}

static CUresult may_wait(CUstream handle, CUstream *stream_p)
{
    CUresult code = stream_use(handle, stream_p);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if ((*stream_p)->capture != NULL) {
        capture_invalidate((*stream_p)->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return capture_forbids_unsafe();
}

/* Waits for a stream.  The legacy stream has ended when the blocking ones have
 * ended too. */
static void wait_for(CUstream stream)
{
    const struct mark end = stream->tail;

    if (stream == stream->ctx->legacy) {
        wait_streams(stream->ctx, LEGACY_AND_BLOCKING);
        return;
    }
    engine_run_until(&end, 1);
    stream_wait_host(stream);
}

static bool poll(CUstream stream)
{
    if (stream == stream->ctx->legacy) {
        return poll_streams(stream->ctx, LEGACY_AND_BLOCKING);
    }
    if (!engine_poll(&stream->tail, 1)) {
        return false;
    }
    stream_wait_host(stream);
    return true;
}

CUresult strm_sync(CUstream handle)
{
    CUstream stream;
    CUresult code = may_wait(handle, &stream);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    wait_for(stream);
    return stream->ctx->sticky;
}

CUresult strm_query(CUstream handle)
{
    CUstream stream;
    CUresult code = may_wait(handle, &stream);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    return poll(stream) ? stream->ctx->sticky : CUDA_ERROR_NOT_READY;
}

CUresult strm_host(CUstream handle, CUhostFn fn, void *user)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);
    struct op *op;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (fn == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op = op_new();
    op->own.kind = WORK_HOST;
    op->own.ctx = stream->ctx;
    op->own.u.host.fn = fn;
    op->own.u.host.user = user;
    return stream_issue(stream, op);
}
