/*
 * run.c - runs one piece of work: what it touches, does and costs.
 *
 * What a piece of work touches is asked right before it runs, because a kernel
 * may read its list of ranges from memory that earlier work wrote.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/run.h"

#include "softcuda/check/labels.h"
#include "softcuda/check/race.h"
#include "softcuda/check/unmapped.h"
#include "softcuda/check/unwritten.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/copiers.h"
#include "softcuda/engine/costs.h"
#include "softcuda/engine/flags.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/peer.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"

#include <string.h>

struct sink {
    const struct op *op;
    CUcontext ctx;
    uint64_t bytes;
    bool bad;
    const char *from; /* source of the copy being declared */
};

static size_t offset_in(const struct alloc *alloc, const void *address)
{
    return (size_t)((uintptr_t)address - alloc->base);
}

/* Notes what a copy brings.  Bytes from pinned memory count as written, because
 * if they were not, that has been reported here. */
static void note_copy(const struct sink *sink, struct alloc *to, size_t offset,
                      size_t bytes)
{
    const char *source = sink->from;
    const struct alloc *from =
        source != NULL ? alloc_find(source, bytes) : NULL;

    if (from != NULL) {
        labels_copy(to, offset, from, offset_in(from, source), bytes, sink->op);
    } else {
        labels_write(to, offset, bytes, sink->op);
    }

    if (from != NULL && from->side == SIDE_PINNED && soft.set.unwritten) {
        unwritten_use(from, offset_in(from, source), bytes, sink->op);
    }
    if (from != NULL && from->side == SIDE_DEVICE && to->side == SIDE_DEVICE) {
        unwritten_copy(to, offset, from, offset_in(from, source), bytes);
    } else {
        unwritten_write(to, offset, bytes);
    }
}

/* New bytes, others each time, show a read as a difference, too.  As floating
 * point they are small numbers, so that the difference does not end in NaN. */
static void discard(struct alloc *alloc, size_t offset, size_t bytes)
{
    unwritten_discard(alloc, offset, bytes);
    memset((void *)(alloc->base + offset),
           0x30 + (int)((soft.set.seed + alloc->discards) & 0xF), bytes);
}

static void note(struct sink *sink, struct alloc *alloc, const char *address,
                 size_t bytes, int what)
{
    const size_t offset = offset_in(alloc, address);

    switch (what) {
    case SOFTCUDA_READ:
        if (soft.set.unwritten) {
            unwritten_use(alloc, offset, bytes, sink->op);
        }
        labels_read(alloc, offset, bytes, sink->op);
        break;
    case SOFTCUDA_COPY_FROM:
        break;
    case SOFTCUDA_COPY_TO:
        note_copy(sink, alloc, offset, bytes);
        break;
    case SOFTCUDA_DISCARD:
        labels_write(alloc, offset, bytes, sink->op);
        discard(alloc, offset, bytes);
        break;
    default:
        unwritten_write(alloc, offset, bytes);
        labels_write(alloc, offset, bytes, sink->op);
        break;
    }
}

static void touch_range(struct sink *sink, const void *address, size_t bytes,
                        int what, bool pageable_too)
{
    struct alloc *alloc;

    if (bytes == 0) {
        return;
    }
    sink->bytes += bytes;
    alloc = alloc_find(address, bytes);
    if (alloc == NULL || alloc->no_access ||
        (alloc->backing != NULL && !peer_reaches(sink->ctx, alloc))) {
        sink->bad |= unmapped_use(address, bytes, sink->op) ||
                     (!pageable_too && !soft.set.pageable);
    } else {
        unmapped_given(alloc, sink->op);
        note(sink, alloc, address, bytes, what);
        if (soft.set.races) {
            race_access(alloc, offset_in(alloc, address), bytes,
                        what != SOFTCUDA_READ && what != SOFTCUDA_COPY_FROM,
                        sink->op);
            if (what != SOFTCUDA_READ && what != SOFTCUDA_COPY_FROM) {
                flags_wrote(alloc, offset_in(alloc, address), bytes,
                            &sink->op->at);
            }
        }
    }
    sink->from = what == SOFTCUDA_COPY_FROM ? address : NULL;
}

static void touch_kernel(void *opaque, const void *address, size_t bytes,
                         int what)
{
    struct sink *sink = opaque;
    struct alloc *alloc = alloc_find(address, bytes);

    if (alloc != NULL && alloc->side == SIDE_DEVICE &&
        !peer_reaches(sink->ctx, alloc)) {
        sink->bad = true;
        return;
    }
    touch_range(sink, address, bytes, what, false);
}

static uint64_t run_kernel(const struct work *work, struct sink *sink)
{
    const softcuda_kernel *fn = &work->u.k.kernel->fn;
    void *const *params = (void *const *)(void *)work->blob;
    uint64_t cost;

    fn->touch(&work->u.k.launch, params, touch_kernel, sink);
    if (sink->bad) {
        return 0;
    }
    if (!costs_of_kernel(fn->name, sink->bytes, &cost)) {
        cost = fn->cost_ns != NULL ? fn->cost_ns(&work->u.k.launch, params)
                                   : costs_of_bytes(sink->bytes);
    }
    fn->run(&work->u.k.launch, params);
    return cost + costs_of_start(sink->op->graph != 0);
}

static uint64_t run_copy(const struct work *work, struct sink *sink)
{
    /* Once on the host the bytes cannot be followed, so the copy counts as a
     * use. */
    touch_range(sink, work->u.copy.src, work->u.copy.bytes,
                work->u.copy.dst_side == SIDE_DEVICE ? SOFTCUDA_COPY_FROM
                                                     : SOFTCUDA_READ,
                work->u.copy.src_side == SIDE_PAGEABLE);
    sink->from = work->u.copy.src;
    touch_range(sink, work->u.copy.dst, work->u.copy.bytes, SOFTCUDA_COPY_TO,
                work->u.copy.dst_side == SIDE_PAGEABLE);
    if (sink->bad) {
        return 0;
    }
    /* It may be a flag for another process, which then reads the rest. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memmove(work->u.copy.dst, work->u.copy.src, work->u.copy.bytes);
    return costs_of_copy(way_of(work), work->u.copy.bytes,
                         sink->op->graph != 0);
}

static uint64_t run_set(const struct work *work, struct sink *sink)
{
    size_t bytes = work->u.set.count * work->u.set.width;

    touch_range(sink, work->u.set.dst, bytes, SOFTCUDA_WRITE, false);
    if (sink->bad) {
        return 0;
    }
    if (work->u.set.width == 1) {
        memset(work->u.set.dst, (int)work->u.set.value, bytes);
    } else {
        uint32_t *words = (uint32_t *)(void *)work->u.set.dst;

        for (size_t i = 0; i < work->u.set.count; i++) {
            words[i] = work->u.set.value;
        }
    }
    return costs_of_set(bytes) + costs_of_start(sink->op->graph != 0);
}

/* Counts as a write, so that a read that does not come before it is a race. */
static void run_discard(const struct work *work, struct sink *sink)
{
    touch_range(sink, work->u.set.dst, work->u.set.count, SOFTCUDA_DISCARD,
                false);
}

/* Lets the wait come after whoever wrote the word, and after all that they
 * knew. */
static void run_await(struct op *op, struct sink *sink)
{
    const struct work *work = op->work;
    const struct alloc *alloc =
        alloc_find(work->u.word.address, work->u.word.width);

    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* another process's writes */
    if (alloc != NULL) {
        flags_join(alloc, offset_in(alloc, work->u.word.address),
                   work->u.word.width, &op->at.vc, &op->ready_ns);
    }
    touch_range(sink, work->u.word.address, work->u.word.width, SOFTCUDA_READ,
                false);
    seat_waited(op);
}

static void run_poke(const struct work *work, struct sink *sink)
{
    touch_range(sink, work->u.word.address, work->u.word.width, SOFTCUDA_WRITE,
                false);
    if (sink->bad) {
        return;
    }
    if (work->u.word.width == 4) {
        const uint32_t value = (uint32_t)work->u.word.value;

        memcpy(work->u.word.address, &value, sizeof(value));
    } else {
        memcpy(work->u.word.address, &work->u.word.value, 8);
    }
}

static bool touch_for(const struct op *op, CUcontext ctx, const char **from_p,
                      const void *address, size_t bytes, int what)
{
    struct sink sink = { .op = op, .ctx = ctx, .from = *from_p };

    touch_kernel(&sink, address, bytes, what);
    *from_p = sink.from;
    return !sink.bad;
}

bool run_op(struct op *op, uint64_t *cost_ns)
{
    const struct work *work = op->work;
    struct sink sink = { .op = op, .ctx = work->ctx };
    struct thread_state *self = thread_self();

    if (soft.set.races) {
        seats_close(&op->at.vc);
    }
    self->in_callback = true;
    switch (work->kind) {
    case WORK_KERNEL:
        *cost_ns = run_kernel(work, &sink);
        break;
    case WORK_COPY:
        *cost_ns = run_copy(work, &sink);
        break;
    case WORK_SET:
        *cost_ns = run_set(work, &sink);
        break;
    case WORK_DISCARD:
        run_discard(work, &sink);
        break;
    case WORK_HOST:
        work->u.host.fn(work->u.host.user);
        break;
    case WORK_AWAIT:
        run_await(op, &sink);
        break;
    case WORK_POKE:
        run_poke(work, &sink);
        break;
    case WORK_ARRIVE:
        visit_arrive(work->u.rendezvous.what, op);
        break;
    case WORK_LEAVE:
        visit_leave(work->u.rendezvous.what);
        break;
    case WORK_RENDEZVOUS:
        *cost_ns = rendezvous_run(work->u.rendezvous.what, touch_for);
        break;
    case WORK_CALL:
    case WORK_NONE:
    case WORK_RECORD:
    case WORK_WAIT:
        break;
    }
    self->in_callback = false;
    return !sink.bad;
}
