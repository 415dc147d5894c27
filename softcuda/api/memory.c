/*
 * memory.c - device and pinned memory, and the copies between them.
 *
 * Device memory is the program's own memory, so a kernel is a C function that
 * follows the addresses it was given.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/memory.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/check/pinned_pattern.h"
#include "softcuda/check/labels.h"
#include "softcuda/check/race.h"
#include "softcuda/check/unwritten.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/flags.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 512
};

static void *reserve(size_t bytes, enum side side)
{
    void *base;

    if (side == SIDE_DEVICE && outside_can(bytes)) {
        return outside_take(bytes);
    }
    return posix_memalign(&base, ALIGNMENT, bytes) == 0 ? base : NULL;
}

static void unreserve(void *base, size_t bytes, enum side side)
{
    if (side == SIDE_DEVICE && outside_can(bytes)) {
        outside_give(base, bytes);
    } else {
        free(base);
    }
}

static void *take(size_t bytes, enum side side, CUcontext ctx)
{
    void *base = reserve(bytes, side);
    struct alloc *alloc;

    if (base == NULL) {
        return NULL;
    }
    alloc = alloc_add(base, bytes, side, ctx);
    if (alloc == NULL) {
        unreserve(base, bytes, side);
        return NULL;
    }
    holes_all(&alloc->holes, bytes);
    /* New memory holds anything.  With a seed it is something else every time,
     * so that reading it before writing shows as a difference. */
    if (side == SIDE_PINNED) {
        pinned_pattern_fill(alloc, soft.set.seed);
    } else if (soft.set.seed != 0) {
        memset(base, (int)((soft.set.seed * 31 + alloc->number) & 0xFF), bytes);
    }
    return base;
}

void mem_forget(struct alloc *alloc)
{
    shadow_clear(&alloc->shadow);
    holes_clear(&alloc->holes);
    labels_clear(&alloc->labels);
    flags_clear(&alloc->flags);
    alloc_remove(alloc);
}

/* Frees memory.  Work that was issued may still use it, so this waits, as a
 * driver does. */
static CUresult give(uintptr_t base, enum side side)
{
    struct alloc *alloc = alloc_find((void *)base, 0);
    size_t bytes;

    if (alloc == NULL || alloc->base != base || alloc->side != side ||
        alloc->backing != NULL || outside_is_foreign(alloc)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stream_run_ctx(alloc->ctx);
    stream_run_others(alloc->ctx);
    if (side == SIDE_DEVICE) {
        alloc->ctx->used -= alloc->bytes;
    }
    bytes = alloc->bytes;
    outside_forget(alloc->outside);
    mem_forget(alloc);
    unreserve((void *)base, bytes, side);
    return CUDA_SUCCESS;
}

/* For calls that stop the world.  A capture may forbid these. */
static CUresult unsafe_call(CUcontext *ctx_p)
{
    CUresult code = ctx_current(ctx_p);

    return code != CUDA_SUCCESS ? code : capture_forbids_unsafe();
}

CUresult mem_info(size_t *free_p, size_t *total_p)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (free_p == NULL || total_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *free_p = soft.set.memory > ctx->used ? soft.set.memory - ctx->used : 0;
    *total_p = soft.set.memory;
    return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr *address_p, size_t bytes)
{
    CUcontext ctx;
    CUresult code = unsafe_call(&ctx);
    void *base;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (address_p == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address_p = 0;
    if (ctx->used > soft.set.memory || bytes > soft.set.memory - ctx->used) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    base = take(bytes, SIDE_DEVICE, ctx);
    if (base == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->used += bytes;
    *address_p = (CUdeviceptr)(uintptr_t)base;
    return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr address)
{
    CUcontext ctx;
    CUresult code = unsafe_call(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    return address == 0 ? CUDA_SUCCESS : give((uintptr_t)address, SIDE_DEVICE);
}

CUresult mem_alloc_host(void **address_p, size_t bytes)
{
    CUcontext ctx;
    CUresult code = unsafe_call(&ctx);
    void *base;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (address_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address_p = NULL;
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    base = take(bytes, SIDE_PINNED, ctx);
    if (base == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address_p = base;
    return CUDA_SUCCESS;
}

CUresult mem_free_host(void *address)
{
    CUcontext ctx;
    CUresult code = unsafe_call(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    return address == NULL ? CUDA_SUCCESS
                           : give((uintptr_t)address, SIDE_PINNED);
}

static enum side host_side(const void *address)
{
    return alloc_find(address, 0) != NULL ? SIDE_PINNED : SIDE_PAGEABLE;
}

/*
 * Makes one copy.  The bytes of a pageable source are taken now, and a
 * pageable destination is filled before the call returns.  In a graph both
 * happen at each launch instead.
 */
static CUresult copy(void *dst, enum side dst_side, const void *src,
                     enum side src_side, size_t bytes, CUstream handle)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);
    struct op *op;
    struct work *work;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    if (dst == NULL || src == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op = op_new();
    work = &op->own;
    if (src_side == SIDE_PAGEABLE && stream->capture == NULL) {
        if (!work_reserve(work, bytes)) {
            op_discard(op);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(work->blob, src, bytes);
        src = work->blob;
    }
    work->kind = WORK_COPY;
    work->ctx = stream->ctx;
    work->u.copy.dst = dst;
    work->u.copy.src = src;
    work->u.copy.bytes = bytes;
    work->u.copy.dst_side = dst_side;
    work->u.copy.src_side = src_side;

    code = stream_issue(stream, op);
    if (code == CUDA_SUCCESS && dst_side == SIDE_PAGEABLE &&
        stream->capture == NULL) {
        engine_run_until(&stream->tail, 1);
        stream_wait_host(stream);
        code = stream->ctx->sticky;
    }
    return code;
}

static void *at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Copies, and returns once the source may be reused.  For pageable memory that
 * is when its bytes are staged.  The copy itself may still be running, and only
 * the legacy stream and the blocking streams come after it. */
CUresult mem_to_device(CUdeviceptr dst, const void *src, size_t bytes)
{
    enum side side = host_side(src);
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code == CUDA_SUCCESS) {
        code = copy(at(dst), SIDE_DEVICE, src, side, bytes, NULL);
    }
    if (code == CUDA_SUCCESS && side == SIDE_PINNED) {
        engine_run_until(&ctx->legacy->tail, 1);
        stream_wait_host(ctx->legacy);
        code = ctx->sticky;
    }
    return code;
}

CUresult mem_to_host(void *dst, CUdeviceptr src, size_t bytes)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code == CUDA_SUCCESS) {
        code = copy(dst, host_side(dst), at(src), SIDE_DEVICE, bytes, NULL);
    }
    if (code == CUDA_SUCCESS && bytes != 0) {
        engine_run_until(&ctx->legacy->tail, 1);
        stream_wait_host(ctx->legacy);
        code = ctx->sticky;
    }
    return code;
}

CUresult mem_to_device_async(CUdeviceptr dst, const void *src, size_t bytes,
                             CUstream stream)
{
    return copy(at(dst), SIDE_DEVICE, src, host_side(src), bytes, stream);
}

CUresult mem_to_host_async(void *dst, CUdeviceptr src, size_t bytes,
                           CUstream stream)
{
    return copy(dst, host_side(dst), at(src), SIDE_DEVICE, bytes, stream);
}

CUresult mem_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                        CUstream stream)
{
    return copy(at(dst), SIDE_DEVICE, at(src), SIDE_DEVICE, bytes, stream);
}

static enum side side_of(CUdeviceptr address)
{
    const struct alloc *alloc = alloc_find(at(address), 0);

    return alloc != NULL ? alloc->side : SIDE_PAGEABLE;
}

CUresult mem_any_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                       CUstream stream)
{
    return copy(at(dst), side_of(dst), at(src), side_of(src), bytes, stream);
}

/* Copies between devices, whether or not they reach each other. */
CUresult mem_peer_async(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                        CUcontext src_ctx, size_t bytes, CUstream stream)
{
    if (!ctx_is_live(dst_ctx) || !ctx_is_live(src_ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return mem_copy_async(dst, src, bytes, stream);
}

CUresult mem_set(CUdeviceptr dst, uint32_t value, uint32_t width, size_t count,
                 CUstream handle)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);
    struct op *op;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (count == 0) {
        return CUDA_SUCCESS;
    }
    if (dst == 0 || dst % width != 0 || count > SIZE_MAX / width) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op = op_new();
    op->own.kind = WORK_SET;
    op->own.ctx = stream->ctx;
    op->own.u.set.dst = at(dst);
    op->own.u.set.count = count;
    op->own.u.set.value = value;
    op->own.u.set.width = width;
    return stream_issue(stream, op);
}

CUresult mem_discard(const void *address, size_t bytes, CUstream handle)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);
    struct op *op;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (bytes == 0 || alloc_find(address, bytes) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op = op_new();
    op->own.kind = WORK_DISCARD;
    op->own.ctx = stream->ctx;
    op->own.u.set.dst = (char *)(uintptr_t)address;
    op->own.u.set.count = bytes;
    op->own.u.set.width = 1;
    return stream_issue(stream, op);
}
