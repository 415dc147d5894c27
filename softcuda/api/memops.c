/*
 * memops.c - streams that wait for a word of memory, or write one.
 *
 * A stream waits until the word has the wanted value, whoever writes it:
 * another stream, another device or the program.  Only then is it known what
 * the wait comes after, so its end is an epoch of a seat, as the end of a
 * visit is.
 *
 * Several operations in one call act on the stream like single ones, but all
 * of them are checked before the first is issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/memops.h"

#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"

enum {
    MOST_AT_ONCE = 255
};

struct word_op {
    bool waits;
    CUdeviceptr address;
    uint64_t value;
    uint32_t width;
    unsigned int flags;
};

/* Checks the memory: the stream's own device, or pinned.  A driver refuses a
 * word on another device. */
static CUresult check(CUstream stream, const struct word_op *w)
{
    const unsigned int how =
        w->flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH;
    const struct alloc *alloc =
        alloc_find((void *)(uintptr_t)w->address, w->width);

    if (w->address % w->width != 0 || alloc == NULL ||
        (alloc->side == SIDE_DEVICE &&
         (alloc->ctx != stream->ctx || outside_is_foreign(alloc))) ||
        (w->waits ? how > CU_STREAM_WAIT_VALUE_NOR
                  : w->flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static struct op *op_of(CUstream stream, const struct word_op *w)
{
    struct op *op = op_new();

    op->own.kind = w->waits ? WORK_AWAIT : WORK_POKE;
    op->own.ctx = stream->ctx;
    op->own.u.word.address = (char *)(uintptr_t)w->address;
    op->own.u.word.value = w->value;
    op->own.u.word.width = w->width;
    op->own.u.word.how = w->flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH;
    return op;
}

/* Whether SOFTCUDA_DROP_WAIT drops this operation on purpose.  Nobody is
 * told. */
static bool is_dropped(void)
{
    return ++soft.waits == soft.set.drop_wait;
}

static CUresult issue(CUstream stream, const struct word_op *w)
{
    struct op *op = op_of(stream, w);
    struct stamp end;

    if (stream->capture != NULL || !w->waits) {
        return stream_issue(stream, op);
    }
    stream_place(stream, op);
    end = seat_wait(op);
    vc_join(&stream->vc, &end);
    stream->tail = op_submit(op);
    return CUDA_SUCCESS;
}

static CUresult one(CUstream handle, const struct word_op *w)
{
    CUstream stream;
    CUresult code;

    if (is_dropped()) {
        return CUDA_SUCCESS;
    }
    code = stream_issuable(handle, &stream);
    if (code == CUDA_SUCCESS) {
        code = check(stream, w);
    }
    return code == CUDA_SUCCESS ? issue(stream, w) : code;
}

CUresult strm_wait_value(CUstream handle, CUdeviceptr address, uint64_t value,
                         uint32_t width, unsigned int flags)
{
    return one(handle, &(struct word_op){ true, address, value, width, flags });
}

CUresult strm_write_value(CUstream handle, CUdeviceptr address, uint64_t value,
                          uint32_t width, unsigned int flags)
{
    return one(handle,
               &(struct word_op){ false, address, value, width, flags });
}

/* ---- several ------------------------------------------------------------- */

/* Reads one operation.  False: it is of an unknown kind. */
static bool read_op(const CUstreamBatchMemOpParams *given, struct word_op *w)
{
    const int kind = given->operation;

    w->waits = kind == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
               kind == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    w->width = kind == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                       kind == CU_STREAM_MEM_OP_WRITE_VALUE_64
                   ? 8
                   : 4;
    w->address = given->waitValue.address;
    w->value =
        w->width == 8 ? given->waitValue.value64 : given->waitValue.value;
    w->flags = given->waitValue.flags;
    return w->waits || kind == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
           kind == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

CUresult strm_words(CUstream handle, unsigned int count,
                    const CUstreamBatchMemOpParams *given, unsigned int flags)
{
    struct word_op w;
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (count > MOST_AT_ONCE || given == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned int i = 0; i < count; i++) {
        if (!read_op(&given[i], &w) || check(stream, &w) != CUDA_SUCCESS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (unsigned int i = 0; i < count && code == CUDA_SUCCESS; i++) {
        (void)read_op(&given[i], &w);
        code = is_dropped() ? CUDA_SUCCESS : issue(stream, &w);
    }
    return code;
}
