/*
 * memops.c - streams that wait for a word of memory, or write one.
 *
 * A wait stands still until the word is what it wants, whoever writes it:
 * another stream, another device, the program.  What it comes after is known
 * only then, so its end is an epoch of a seat, as that of a visit is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/memops.h"

#include "softcuda/alloc.h"
#include "softcuda/context.h"
#include "softcuda/engine.h"
#include "softcuda/issue.h"
#include "softcuda/meet.h"
#include "softcuda/soft.h"
#include "softcuda/stream.h"
#include "softcuda/work.h"

/* Memory of the stream's own device, or pinned: a driver refuses a word that
 * another device holds. */
static CUresult check(CUstream stream, CUdeviceptr address, uint32_t width)
{
    const struct alloc *alloc =
        alloc_find((void *)(uintptr_t)address, width);

    if (address % width != 0 || alloc == NULL ||
        (alloc->side == SIDE_DEVICE && alloc->ctx != stream->ctx)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUdeviceptr address, uint32_t width,
                      CUstream *stream_p)
{
    CUresult code = stream_issuable(handle, stream_p);

    return code != CUDA_SUCCESS ? code : check(*stream_p, address, width);
}

static struct op *word_op(CUstream stream, enum work_kind kind,
                          CUdeviceptr address, uint64_t value, uint32_t width,
                          unsigned int how)
{
    struct op *op = op_new();

    op->own.kind = kind;
    op->own.ctx = stream->ctx;
    op->own.u.word.address = (char *)(uintptr_t)address;
    op->own.u.word.value = value;
    op->own.u.word.width = width;
    op->own.u.word.how = how;
    return op;
}

CUresult strm_wait_value(CUstream handle, CUdeviceptr address, uint64_t value,
                         uint32_t width, unsigned int flags)
{
    const unsigned int how = flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH;
    CUstream stream;
    CUresult code;
    struct stamp end;
    struct op *op;

    /* One that is dropped on purpose: nobody is told. */
    if (++soft.waits == soft.set.drop_wait) {
        return CUDA_SUCCESS;
    }
    code = begin(handle, address, width, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (how > CU_STREAM_WAIT_VALUE_NOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op = word_op(stream, WORK_AWAIT, address, value, width, how);
    if (stream->capture != NULL) {
        return stream_issue(stream, op);
    }
    stream_place(stream, op);
    end = seat_wait(op);
    vc_join(&stream->vc, &end);
    stream->tail = op_submit(op);
    return CUDA_SUCCESS;
}

CUresult strm_write_value(CUstream handle, CUdeviceptr address, uint64_t value,
                          uint32_t width, unsigned int flags)
{
    CUstream stream;
    CUresult code;

    if (++soft.waits == soft.set.drop_wait) {
        return CUDA_SUCCESS;
    }
    code = begin(handle, address, width, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return stream_issue(stream, word_op(stream, WORK_POKE, address, value,
                                        width, 0));
}
