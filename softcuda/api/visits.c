/*
 * visits.c - visits of rendezvous, on streams and in graphs.
 *
 * A visit is two operations of its stream, a begin and an end.  A rendezvous is
 * an operation of its own: it waits for the begins of its visits, and their
 * ends wait for it.  It is submitted when the first visit joins, and is held
 * back until the last visit has come, or until the rendezvous has failed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/visits.h"

#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/wait.h"
#include "softcuda/engine/work.h"

#include <stdlib.h>

static struct op *visit_op(softcuda_visit *visit, enum work_kind kind)
{
    struct op *op = op_new();

    op->own.kind = kind;
    op->own.u.rendezvous.name = visit->call->name;
    op->own.u.rendezvous.what = visit;
    op->own.kept = shared_ref(&visit->shared);
    return op;
}

struct op *visits_begin(softcuda_call *call, CUcontext ctx,
                        softcuda_visit **visit_p)
{
    softcuda_visit *visit = visit_new(call, ctx);

    if (visit == NULL) {
        abort(); /* nobody can hold half a rendezvous */
    }
    *visit_p = visit;
    return visit_op(visit, WORK_ARRIVE);
}

void visits_begun(softcuda_visit *visit, struct op *op)
{
    visit_is(visit, &visit->reads, op);
    visit->begin = op_submit(op);
}

struct op *visits_end(softcuda_visit *visit, bool in_graph)
{
    struct op *op;

    visit->epoch = seat_next(visit->call->seat);
    visit->call->come(visit->call, visit, in_graph);
    op = visit_op(visit, WORK_LEAVE);
    for (uint32_t i = 0; i < visit->n; i++) {
        op_after(op, &visit->joined[i]->mark);
    }
    return op;
}

void visits_ended(softcuda_visit *visit, struct op *op)
{
    visit_is(visit, &visit->writes, op);
    shared_drop(&visit->shared);
}

CUresult visits_issue(CUstream handle, softcuda_call *call)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);
    softcuda_visit *visit;
    struct stamp end;
    struct op *op;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (stream->capture != NULL) {
        op = op_new();
        op->own.kind = WORK_CALL;
        op->own.ctx = stream->ctx;
        op->own.u.rendezvous.name = call->name;
        op->own.u.rendezvous.what = call;
        op->own.kept = shared_ref((struct shared *)(void *)call);
        return stream_issue(stream, op);
    }

    op = visits_begin(call, stream->ctx, &visit);
    stream_place(stream, op);
    visits_begun(visit, op);
    stream->tail = visit->begin;

    op = visits_end(visit, false);
    end = seat_stamp(call->seat, visit->epoch);
    vc_join(&stream->vc, &end);
    stream_place(stream, op);
    visits_ended(visit, op);
    stream->tail = op_submit(op);
    return CUDA_SUCCESS;
}

static void rendezvous_free(struct shared *shared)
{
    softcuda_rendezvous *rendezvous = (softcuda_rendezvous *)(void *)shared;

    free(rendezvous->visits);
    free(rendezvous);
}

softcuda_rendezvous *visits_rendezvous(const char *name, uint32_t places,
                                       softcuda_rendezvous_fn *run,
                                       softcuda_over_fn *over, void *user)
{
    softcuda_rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    struct op *op;

    if (rendezvous == NULL) {
        abort(); /* nobody can hold half a rendezvous */
    }
    rendezvous->visits = calloc(places, sizeof(*rendezvous->visits));
    if (rendezvous->visits == NULL) {
        abort();
    }
    rendezvous->shared = (struct shared){ 1, rendezvous_free };
    rendezvous->name = name;
    rendezvous->places = places;
    rendezvous->run = run;
    rendezvous->over = over;
    rendezvous->user = user;

    op = op_new();
    op->own.kind = WORK_RENDEZVOUS;
    op->own.u.rendezvous.name = name;
    op->own.u.rendezvous.what = rendezvous;
    op->own.kept = shared_ref(&rendezvous->shared);
    op->unmet = 1;
    rendezvous->mark = op_submit(op);
    return rendezvous;
}

void visits_join(softcuda_rendezvous *rendezvous, uint32_t place,
                 softcuda_visit *visit)
{
    if (visit->n == visit->room) {
        visit->joined =
            op_grow(visit->joined, &visit->room, sizeof(*visit->joined));
    }
    visit->joined[visit->n++] = rendezvous;
    shared_ref(&rendezvous->shared);
    if (rendezvous->visits[place] == NULL) {
        rendezvous->visits[place] = visit;
    }
    if (mark_pending(&rendezvous->mark)) {
        op_needs(rendezvous->mark.op, &visit->begin);
    }
    if (visit->arrived) {
        struct op *op = visit_counts(visit, visit->n - 1);

        if (op != NULL) {
            engine_release(op);
        }
    }
    wait_news();
}

void visits_fail(softcuda_rendezvous *rendezvous)
{
    rendezvous->failed = true;
    if (!rendezvous->released) {
        rendezvous->released = true;
        engine_release(rendezvous->mark.op);
    }
    wait_news();
}
