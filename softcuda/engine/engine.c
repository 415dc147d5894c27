/*
 * engine.c - operations: what they wait for, and what happens when one runs.
 *
 * Everything runs inside some call of the program.  With seed 0 an operation
 * runs as soon as it is issued, so operations run in the order of issue; only
 * what comes after a host function waits until the program synchronizes.  With
 * any other seed operations pile up, and every later call may run some of
 * those whose dependencies are met; run_queue.c chooses them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/engine.h"

#include "softcuda/engine/context.h"
#include "softcuda/engine/copiers.h"
#include "softcuda/engine/flags.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/run_queue.h"
#include "softcuda/engine/run.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/wait.h"

#include <stdio.h>

enum {
    MAX_PENDING = 2048
};

static uint64_t next_seq, next_need;

uint64_t engine_next_seq(void)
{
    return next_seq;
}

static void trace(const struct op *op, uint64_t start)
{
    char text[200];

    if (op->work->kind == WORK_NONE) {
        return;
    }
    op_describe(op, text, sizeof(text));
    fprintf(stderr, "softcuda: run %llu..%llu %s\n", (unsigned long long)start,
            (unsigned long long)op->end_ns, text);
}

static void tell_end(struct op *op)
{
    for (uint32_t i = 0; i < op->n_tells; i++) {
        if (op->tells[i]->op == op && op->tells[i]->serial == op->serial) {
            op->tells[i]->end_ns = op->end_ns;
        }
    }
}

static bool released; /* in this call something became ready */

void engine_release(struct op *op)
{
    if (--op->unmet == 0) {
        run_queue_add(op);
        released = true;
    }
}

/* Releases the rendezvous for which this visit was the last to come. */
static void release_all(softcuda_visit *visit)
{
    for (uint32_t i = 0; i < visit->n; i++) {
        struct op *op = visit_counts(visit, i);

        if (op != NULL) {
            engine_release(op);
        }
    }
}

/* ---- ops that wait for a word of memory ---------------------------------- */

static struct op **held;
static uint32_t held_room;

static bool must_be_held(const struct op *op)
{
    return op->work->kind == WORK_AWAIT &&
           op->work->ctx->sticky == CUDA_SUCCESS && !flag_is_up(op->work);
}

static void hold(struct op *op)
{
    if (soft.held == held_room) {
        held = op_grow(held, &held_room, sizeof(*held));
    }
    held[soft.held++] = op;
}

/* Releases the ops whose word may have been written since, even by the
 * program. */
static void look_at_held(void)
{
    for (uint64_t i = 0; i < soft.held;) {
        struct op *op = held[i];

        if (must_be_held(op)) {
            i++;
            continue;
        }
        held[i] = held[--soft.held];
        run_queue_add(op);
        released = true;
    }
}

static void execute(struct op *op)
{
    uint64_t cost = 0, start;
    CUcontext ctx = op->work->ctx;

    run_queue_remove(op);
    if (must_be_held(op)) {
        hold(op);
        return;
    }

    /* After a wild access the context does nothing more. */
    if (op->work->kind != WORK_NONE &&
        (ctx == NULL || ctx->sticky == CUDA_SUCCESS)) {
        if (!run_op(op, &cost) && ctx != NULL) {
            ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        }
    }
    start = copiers_begin(op->work, op->ready_ns, cost);
    op->end_ns = start + cost;
    if (op->end_ns > soft.last_ns) {
        soft.last_ns = op->end_ns;
    }
    if (soft.set.trace) {
        trace(op, start);
    }

    flags_ended(op->work, op->end_ns);
    if (op->work->kind == WORK_ARRIVE) {
        release_all(op->work->u.rendezvous.what);
    }
    tell_end(op);
    wait_news();
    for (uint32_t i = 0; i < op->n_succ; i++) {
        struct op *after = op->succ[i];

        if (op->end_ns > after->ready_ns) {
            after->ready_ns = op->end_ns;
        }
        if (--after->unmet == 0) {
            run_queue_add(after);
        }
    }
    soft.pending--;
    op_discard(op);
    if (soft.held != 0) {
        look_at_held();
    }
}

/* With seed 0: runs what has become ready and what comes after it, in the order
 * of issue. */
static void run_released(void)
{
    while (released) {
        struct op *first = run_queue_first();

        released = first != NULL;
        if (first != NULL) {
            execute(first);
        }
    }
}

struct mark op_submit(struct op *op)
{
    struct mark mark = { op, op->serial, 0 };

    op->seq = next_seq++;
    op->need = 0;
    soft.pending++;
    if (op->unmet == 0) {
        /* A host function may need a lock that the caller holds now, so it runs
         * later. */
        if (soft.set.seed == 0 && op->work->kind != WORK_HOST) {
            execute(op);
            mark.end_ns = op->end_ns;
        } else {
            run_queue_add(op);
        }
    }
    return mark;
}

void engine_settle(void)
{
    if (soft.set.seed == 0) {
        run_released();
    }
}

static void need_one(const struct mark *mark, uint64_t need)
{
    static struct op **stack;
    static uint32_t room;
    uint32_t n = 0;

    if (!mark_pending(mark) || mark->op->need == need) {
        return;
    }
    mark->op->need = need;
    if (room == 0) {
        stack = op_grow(stack, &room, sizeof(*stack));
    }
    stack[n++] = mark->op;
    while (n > 0) {
        struct op *op = stack[--n];

        for (uint32_t i = 0; i < op->n_deps; i++) {
            struct op *before = op->deps[i].op;

            if (!mark_pending(&op->deps[i]) || before->need == need) {
                continue;
            }
            before->need = need;
            if (n == room) {
                stack = op_grow(stack, &room, sizeof(*stack));
            }
            stack[n++] = before;
        }
    }
}

/* Marks the ops that must run before these marks are done, with a number that
 * it returns.  Ops that have run are left out. */
static uint64_t need_all(const struct mark *marks, uint32_t n)
{
    const uint64_t need = ++next_need;

    for (uint32_t i = 0; i < n; i++) {
        need_one(&marks[i], need);
    }
    return need;
}

static bool any_pending(const struct mark *marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (mark_pending(&marks[i])) {
            return true;
        }
    }
    return false;
}

static void run_needed(uint64_t need)
{
    for (;;) {
        struct op *op = run_queue_choose(need);

        if (op == NULL) {
            return;
        }
        execute(op);
        /* Other ops may run in between, as on a device. */
        if (soft.set.seed != 0 && run_queue_is_one_more(512)) {
            execute(run_queue_choose(0));
        }
    }
}

/* Runs one ready op, because any op may write the word that a stream waits for.
 * False: none is ready. */
static bool run_for_held(void)
{
    if (soft.held == 0) {
        return false;
    }
    look_at_held();
    if (!run_queue_is_any()) {
        return false;
    }
    execute(run_queue_choose(0));
    return true;
}

void engine_run_until(const struct mark *marks, uint32_t n)
{
    do {
        run_needed(need_all(marks, n));
    } while (any_pending(marks, n) && (run_for_held() || wait_for_news()));
}

bool engine_poll(const struct mark *marks, uint32_t n)
{
    const uint64_t need = need_all(marks, n);
    struct op *op = NULL;

    if (soft.set.seed == 0) {
        run_needed(need);
    } else {
        op = run_queue_choose(need);
        if (op != NULL) {
            execute(op);
        }
    }
    /* Who has run an op may have more: the thread can lose its processor for
     * longer than a device that is stuck stands still. */
    if (op == NULL && any_pending(marks, n) && !run_for_held()) {
        wait_glance();
    }
    return !any_pending(marks, n);
}

void engine_run_all(void)
{
    while (run_queue_is_any()) {
        execute(run_queue_choose(0));
    }
}

/* Runs ops at the end of a call, as many as chance says. */
void engine_pump(void)
{
    if (soft.held != 0) {
        look_at_held();
    }
    if (soft.set.seed == 0) {
        engine_settle();
        /* Whatever is left waits for a host function or for other ranks. */
        if (soft.pending > MAX_PENDING) {
            engine_run_all();
        }
        return;
    }
    while (run_queue_is_one_more(256)) {
        execute(run_queue_choose(0));
    }
    while (run_queue_is_any() && soft.pending > MAX_PENDING) {
        execute(run_queue_choose(0));
    }
}
