/*
 * issue.c - putting work on streams, and waiting for what is there.
 *
 * A stream is a line of operations.  The legacy stream also comes after all
 * that is in the blocking streams of its context, and they after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/issue.h"

#include "softcuda/capture.h"
#include "softcuda/context.h"
#include "softcuda/engine.h"
#include "softcuda/soft.h"
#include "softcuda/stream.h"
#include "softcuda/wait.h"

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
        /* The host has no lane of its own: take over all it knows. */
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

/* The first of the context's streams is the legacy one. */
static CUstream next_stream(CUcontext ctx, CUstream stream)
{
    return stream == ctx->legacy ? ctx->streams : stream->next;
}

#define EACH_STREAM(s, ctx) \
    CUstream s = (ctx)->legacy; \
    s != NULL; \
    s = next_stream(ctx, s)

/* What the streams hold now, and waiting for it while others go on. */
struct end {
    struct mark mark;
    struct stamp at;
};

static struct end *ends_of(CUcontext ctx, uint32_t *n_p)
{
    struct end *ends = NULL;
    uint32_t n = 0, room = 0;

    for (EACH_STREAM(s, ctx)) {
        if (n == room) {
            ends = op_grow(ends, &room, sizeof(*ends));
        }
        ends[n].mark = s->tail;
        ends[n].at = stream_stamp(s);
        vc_ref(ends[n++].at.vc);
    }
    *n_p = n;
    return ends;
}

static bool run_ends(const struct end *ends, uint32_t n)
{
    const uint64_t need = engine_need_new();
    bool pending = false;

    for (uint32_t i = 0; i < n; i++) {
        engine_need(&ends[i].mark, need);
    }
    engine_run_needed(need);
    for (uint32_t i = 0; i < n; i++) {
        pending |= mark_pending(&ends[i].mark);
    }
    return pending;
}

static void wait_ends(CUcontext ctx)
{
    uint32_t n;
    struct end *ends = ends_of(ctx, &n);

    while (run_ends(ends, n) && wait_for_news()) {
    }
    for (uint32_t i = 0; i < n; i++) {
        host_join(&ends[i].at);
        vc_drop(ends[i].at.vc);
    }
    for (EACH_STREAM(s, ctx)) {
        host_until(s->tail.end_ns);
    }
    free(ends);
}

void stream_run_ctx(CUcontext ctx)
{
    const uint64_t need = engine_need_new();
    bool pending = false;

    if (ctx->legacy == NULL) {
        return;
    }
    for (EACH_STREAM(s, ctx)) {
        engine_need(&s->tail, need);
    }
    engine_run_needed(need);
    for (EACH_STREAM(s, ctx)) {
        pending |= mark_pending(&s->tail);
    }
    if (pending) {
        wait_ends(ctx);
    } else {
        for (EACH_STREAM(s, ctx)) {
            stream_wait_host(s);
        }
    }
    join_gone(ctx);
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

/* The legacy stream is done when the blocking ones are, too. */
static struct mark legacy_end(CUstream stream)
{
    struct op *op;

    if (stream != stream->ctx->legacy) {
        return stream->tail;
    }
    op = op_new();
    stream_place(stream, op);
    stream->tail = op_submit(op);
    return stream->tail;
}

CUresult strm_sync(CUstream handle)
{
    CUstream stream;
    CUresult code = may_wait(handle, &stream);
    struct mark end;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    end = legacy_end(stream);
    engine_run_until(&end);
    stream_wait_host(stream);
    return stream->ctx->sticky;
}

CUresult strm_query(CUstream handle)
{
    CUstream stream;
    CUresult code = may_wait(handle, &stream);
    struct mark end;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    end = legacy_end(stream);
    if (!engine_poll(&end)) {
        return CUDA_ERROR_NOT_READY;
    }
    stream_wait_host(stream);
    return stream->ctx->sticky;
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
