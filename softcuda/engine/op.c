/*
 * op.c - operations: work with its position in the order, and what
 * it waits for.
 *
 * Ops are recycled.  An op that has run goes to the free list with a new
 * serial, so marks on it read as done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/op.h"

#include "softcuda/engine/soft.h"

#include <stdio.h>
#include <stdlib.h>

static struct op *free_ops;

void *op_grow(void *array, uint32_t *room, size_t each)
{
    uint32_t larger = *room ? *room * 2 : 4;
    void *moved = realloc(array, larger * each);

    if (moved == NULL) {
        abort(); /* without the dependency the order would be wrong */
    }
    *room = larger;
    return moved;
}

struct op *op_new(void)
{
    struct op *op = free_ops;

    if (op != NULL) {
        free_ops = op->next;
    } else {
        op = calloc(1, sizeof(*op));
        if (op == NULL) {
            abort(); /* nobody can launch half a graph */
        }
    }
    op->own.kind = WORK_NONE;
    op->work = &op->own;
    op->ready_ns = soft.host->ns;
    op->queue_index = OP_NOT_QUEUED;
    return op;
}

void op_discard(struct op *op)
{
    work_clear(&op->own);
    stamp_clear(&op->at);
    shared_drop(op->kept);
    op->kept = NULL;
    op->serial++;
    op->unmet = op->n_deps = op->n_succ = op->n_tells = 0;
    op->seat = NULL;
    op->stream = op->graph = op->node = 0;
    op->next = free_ops;
    free_ops = op;
}

bool mark_pending(const struct mark *mark)
{
    return mark->op != NULL && mark->op->serial == mark->serial;
}

void op_after(struct op *op, const struct mark *mark)
{
    struct op *before = mark->op;

    if (!mark_pending(mark)) {
        if (mark->end_ns > op->ready_ns) {
            op->ready_ns = mark->end_ns;
        }
        return;
    }
    if (before->n_succ == before->succ_room) {
        before->succ =
            op_grow(before->succ, &before->succ_room, sizeof(*before->succ));
    }
    before->succ[before->n_succ++] = op;
    op_needs(op, mark);
    op->unmet++;
}

void op_needs(struct op *op, const struct mark *mark)
{
    if (op->n_deps == op->deps_room) {
        op->deps = op_grow(op->deps, &op->deps_room, sizeof(*op->deps));
    }
    op->deps[op->n_deps++] = *mark;
}

void op_tell(struct op *op, struct mark *mark)
{
    op->tells[op->n_tells++] = mark;
}

void op_describe(const struct op *op, char *text, size_t bytes)
{
    if (op->graph != 0) {
        snprintf(text, bytes, "%s on stream %u in graph %u, node %u",
                 work_name(op->work), op->stream, op->graph, op->node);
    } else {
        snprintf(text, bytes, "%s on stream %u", work_name(op->work),
                 op->stream);
    }
}
