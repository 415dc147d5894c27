/*
 * visits.c - visits of meetings, on streams and in graphs.
 *
 * A visit is two operations of its stream, a begin and an end.  A meeting is
 * an operation of its own: it waits for the begins of its visits, and their
 * ends wait for it.  It is submitted when the first visit joins, and is held
 * back until the last visit has come, or until the meeting has failed.
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
        abort(); /* nobody can hold half a meeting */
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
        op_after(op, &visit->meetings[i]->mark);
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

static void meeting_free(struct shared *shared)
{
    softcuda_meeting *meeting = (softcuda_meeting *)(void *)shared;

    free(meeting->visits);
    free(meeting);
}

softcuda_meeting *visits_meeting(const char *name, uint32_t places,
                                 softcuda_meeting_fn *run,
                                 softcuda_over_fn *over, void *user)
{
    softcuda_meeting *meeting = calloc(1, sizeof(*meeting));
    struct op *op;

    if (meeting == NULL) {
        abort(); /* nobody can hold half a meeting */
    }
    meeting->visits = calloc(places, sizeof(*meeting->visits));
    if (meeting->visits == NULL) {
        abort();
    }
    meeting->shared = (struct shared){ 1, meeting_free };
    meeting->name = name;
    meeting->places = places;
    meeting->run = run;
    meeting->over = over;
    meeting->user = user;

    op = op_new();
    op->own.kind = WORK_RENDEZVOUS;
    op->own.u.rendezvous.name = name;
    op->own.u.rendezvous.what = meeting;
    op->own.kept = shared_ref(&meeting->shared);
    op->unmet = 1;
    meeting->mark = op_submit(op);
    return meeting;
}

void visits_join(softcuda_meeting *meeting, uint32_t place,
                 softcuda_visit *visit)
{
    if (visit->n == visit->room) {
        visit->meetings =
            op_grow(visit->meetings, &visit->room, sizeof(*visit->meetings));
    }
    visit->meetings[visit->n++] = meeting;
    shared_ref(&meeting->shared);
    if (meeting->visits[place] == NULL) {
        meeting->visits[place] = visit;
    }
    if (mark_pending(&meeting->mark)) {
        op_needs(meeting->mark.op, &visit->begin);
    }
    if (visit->arrived) {
        struct op *op = visit_counts(visit, visit->n - 1);

        if (op != NULL) {
            engine_release(op);
        }
    }
    wait_news();
}

void visits_fail(softcuda_meeting *meeting)
{
    meeting->failed = true;
    if (!meeting->released) {
        meeting->released = true;
        engine_release(meeting->mark.op);
    }
    wait_news();
}
