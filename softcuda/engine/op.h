/*
 * op.h - operations: work with its position in the order, and what
 * it waits for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_OP_H
#define SOFTCUDA_OP_H

#include "softcuda/engine/order.h"
#include "softcuda/engine/shared.h"
#include "softcuda/engine/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OP_NOT_QUEUED 0xFFFFFFFFu

/* A reference to an op that does not keep it.  Ops are recycled once they have
 * run; after that only the serial and the end time matter. */
struct mark {
    struct op *op;
    uint64_t serial;
    uint64_t end_ns;
};

struct op {
    uint64_t serial; /* changes once the op has run */
    uint64_t seq;
    struct op *next; /* in the free list */

    const struct work *work; /* &own, or a node's */
    struct work own;
    struct shared *kept;          /* until the op has run: the node's exec */
    uint32_t stream, graph, node; /* numbers, in reports; graph 0: none */

    struct stamp at;
    struct softcuda_seat *seat; /* of a WORK_AWAIT: the seat of its end */
    uint64_t seat_epoch;
    uint64_t ready_ns, end_ns;

    uint64_t need;
    uint32_t unmet, queue_index;
    struct mark *deps;
    uint32_t n_deps, deps_room;
    struct op **succ;
    uint32_t n_succ, succ_room;
    struct mark *tells[3]; /* of its stream, its event, its exec */
    uint32_t n_tells;
};

/* Never returns NULL, because nobody can launch half a graph. */
struct op *op_new(void);
/* Gives up what the op holds, and recycles it. */
void op_discard(struct op *op);
/* Makes the op wait for the mark.  Must come before op_submit(). */
void op_after(struct op *op, const struct mark *mark);
/* Running this op requires that the mark has run, but not by waiting for it. */
void op_needs(struct op *op, const struct mark *mark);
/* The mark learns when the op has ended, if it is still on the op then. */
void op_tell(struct op *op, struct mark *mark);
bool mark_pending(const struct mark *mark);
/* Writes what the op does and where, for a report. */
void op_describe(const struct op *op, char *text, size_t bytes);
/* Makes room in an array.  Never returns NULL. */
void *op_grow(void *array, uint32_t *room, size_t each);

#endif
