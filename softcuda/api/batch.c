/*
 * batch.c - several copies in one call.
 *
 * The batch has a position in the stream, and its copies have no order among
 * each other.  Each copy is an operation of its own, between a border that all
 * copies come after and one that comes after all copies.  A batch cannot be a
 * node of a graph: in a capture it is refused, and the capture goes on without
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/batch.h"

#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/op.h"

#include <string.h>

enum {
    LANES = 8, /* how many copies run side by side; the others follow these,
                  each on one of the lanes */
    ORDER_STREAM = 1,
    ORDER_ANY = 3,
    FLAG_OVERLAP = 1
};

static enum side side_of(CUdeviceptr address)
{
    const struct alloc *alloc = alloc_find((void *)(uintptr_t)address, 0);

    return alloc != NULL ? alloc->side : SIDE_PAGEABLE;
}

static bool attributes_are_good(const struct batch *b)
{
    if (b->attributes == NULL || b->indexes == NULL || b->n_attributes == 0 ||
        b->n_attributes > b->count || b->indexes[0] != 0) {
        return false;
    }
    for (size_t i = 0; i < b->n_attributes; i++) {
        const struct copy_attributes *a = &b->attributes[i];

        if (a->order < ORDER_STREAM || a->order > ORDER_ANY ||
            (a->flags & ~(unsigned)FLAG_OVERLAP) != 0 ||
            b->indexes[i] >= b->count ||
            (i != 0 && b->indexes[i] <= b->indexes[i - 1])) {
            return false;
        }
    }
    return true;
}

static CUresult check(const struct batch *b, size_t *fail_p)
{
    *fail_p = SIZE_MAX;
    if (b->dsts == NULL || b->srcs == NULL || b->sizes == NULL ||
        b->count == 0 || !attributes_are_good(b)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (b->dsts[i] == 0 || b->srcs[i] == 0 || b->sizes[i] == 0) {
            *fail_p = i;
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Makes one copy.  The bytes of a pageable source are taken now. */
static struct op *copy_op(const struct batch *b, size_t i, CUstream stream)
{
    struct op *op = op_new();
    struct work *work = &op->own;
    const char *source = (const char *)(uintptr_t)b->srcs[i];

    work->u.copy.dst = (char *)(uintptr_t)b->dsts[i];
    work->u.copy.bytes = b->sizes[i];
    work->u.copy.dst_side = side_of(b->dsts[i]);
    work->u.copy.src_side = side_of(b->srcs[i]);
    if (work->u.copy.src_side == SIDE_PAGEABLE) {
        if (!work_reserve(work, b->sizes[i])) {
            op_discard(op);
            return NULL;
        }
        memcpy(work->blob, source, b->sizes[i]);
        source = work->blob;
    }
    work->u.copy.src = source;
    work->kind = WORK_COPY;
    work->ctx = stream->ctx;
    stream_own(stream, op);
    return op;
}

struct lane {
    struct mark last;
    struct stamp at; /* epoch 0: the lane is not used */
};

/* Submits an op on a lane.  It comes after the border, or after the lane's last
 * copy. */
static void issue(struct op *op, struct lane *lane, uint32_t number,
                  const struct mark *border, const struct stamp *border_at)
{
    const bool first = lane->at.epoch == 0;

    op->at.lane = number;
    op->at.vc = vc_ref(first ? border_at->vc : lane->at.vc);
    if (first) {
        vc_join(&op->at.vc, border_at);
    }
    op->at.epoch = lane_next(number);
    op_after(op, first ? border : &lane->last);
    stamp_set(&lane->at, &op->at);
    lane->last = op_submit(op);
}

static void end(CUstream stream, struct lane *lanes)
{
    struct op *op = op_new();

    for (uint32_t i = 0; i < LANES && lanes[i].at.epoch != 0; i++) {
        op_after(op, &lanes[i].last);
        vc_join(&stream->vc, &lanes[i].at);
        stamp_clear(&lanes[i].at);
    }
    stream_place(stream, op);
    stream->tail = op_submit(op);
}

static CUresult issue_all(const struct batch *b, CUstream stream,
                          bool *to_program)
{
    struct lane lanes[LANES] = { { .at = { NULL, 0, 0 } } };
    struct op *op = op_new();
    struct stamp border_at;
    struct mark border;
    CUresult code = CUDA_SUCCESS;

    *to_program = false;
    stream_place(stream, op);
    border_at = op->at;
    vc_ref(border_at.vc);
    border = op_submit(op);
    stream->tail = border;
    for (size_t i = 0; i < b->count && code == CUDA_SUCCESS; i++) {
        op = copy_op(b, i, stream);
        if (op == NULL) {
            code = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        *to_program |= op->own.u.copy.dst_side == SIDE_PAGEABLE;
        issue(op, &lanes[i % LANES], stream->branches[i % LANES], &border,
              &border_at);
    }
    end(stream, lanes);
    vc_drop(border_at.vc);
    return code;
}

CUresult mem_batch(const struct batch *batch, size_t *fail_p, CUstream handle)
{
    size_t unused;
    CUstream stream;
    CUresult code;
    bool to_program;

    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code = check(batch, fail_p != NULL ? fail_p : &unused);
    if (code == CUDA_SUCCESS) {
        code = stream_issuable(handle, &stream);
    }
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (stream->capture != NULL) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!stream_branches(stream, LANES)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    code = issue_all(batch, stream, &to_program);
    if (code == CUDA_SUCCESS && to_program) {
        engine_run_until(&stream->tail, 1);
        stream_wait_host(stream);
        code = stream->ctx->sticky;
    }
    return code;
}
