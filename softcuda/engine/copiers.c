/*
 * copiers.c - the engines that copy beside compute, one for each direction.
 *
 * Copies of one direction take turns, whatever streams they are on.  Copies of
 * other directions and kernels go on beside them.  An engine does not wait for
 * a copy that is not ready: a copy that is ready goes first, even if it was
 * issued later.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/copiers.h"

#include "softcuda/engine/context.h"
#include "softcuda/engine/soft.h"

#include <string.h>

enum {
    BUSY = 256 /* how many busy times are remembered; an engine counts as busy
                  before them */
};

struct copier {
    struct {
        uint64_t first, end;
    } busy[BUSY]; /* sorted, and not overlapping */
    uint32_t n;
    uint64_t from; /* where the remembered times begin */
};

static struct copier copiers[SOFT_MAX_DEVICES][N_WAYS];

enum way way_of(const struct work *work)
{
    const bool to_device = work->u.copy.dst_side == SIDE_DEVICE;
    const bool from_device = work->u.copy.src_side == SIDE_DEVICE;

    if (from_device) {
        return to_device ? WAY_WITHIN : WAY_OUT;
    }
    return to_device ? WAY_BACK : WAY_NONE;
}

static void remember(struct copier *c, uint32_t at, uint64_t first,
                     uint64_t end)
{
    if (c->n == BUSY) {
        c->from = c->busy[0].end;
        memmove(&c->busy[0], &c->busy[1], (BUSY - 1) * sizeof(c->busy[0]));
        c->n--;
        at -= at != 0;
    }
    memmove(&c->busy[at + 1], &c->busy[at], (c->n - at) * sizeof(c->busy[0]));
    c->busy[at].first = first;
    c->busy[at].end = end;
    c->n++;
}

uint64_t copiers_begin(const struct work *work, uint64_t ready_ns,
                       uint64_t cost_ns)
{
    struct copier *c;
    uint64_t first;
    uint32_t at = 0;

    if (work->kind != WORK_COPY || way_of(work) == WAY_NONE) {
        return ready_ns;
    }
    c = &copiers[work->ctx->device][way_of(work)];
    first = ready_ns > c->from ? ready_ns : c->from;
    while (at < c->n && c->busy[at].first < first + cost_ns) {
        if (c->busy[at].end > first) {
            first = c->busy[at].end;
        }
        at++;
    }
    remember(c, at, first, first + cost_ns);
    return first;
}
