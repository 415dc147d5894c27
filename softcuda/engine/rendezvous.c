/*
 * rendezvous.c - rendezvous of several streams: who is there, and what they
 * know.
 *
 * What an operation comes after is known when it is issued.  The ends of
 * visits are the exception: they come after visits of other ranks, which may
 * not have been issued yet.  So each end is an epoch on the lane of a seat,
 * and what that epoch knows is written down once its rendezvous have been held.
 * An operation asks for it right before it runs, because by then the ends that
 * it waits for are over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/rendezvous.h"

#include "softcuda/engine/context.h"
#include "softcuda/engine/costs.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"
#include "softcuda/softcuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEAT_KEEPS = 512, /* how many ends keep their clocks */
    /* the default cost of a rendezvous, and of its bytes */
    RENDEZVOUS_NS = 10000,
    RENDEZVOUS_BYTES_PER_NS = 200
};

struct softcuda_seat {
    softcuda_seat *next;
    uint32_t lane;
    bool dead;
    uint64_t born; /* the lane's epoch when it was made; earlier ones are not
                      ends */
    uint64_t n;    /* ends so far */
    struct {
        uint64_t epoch;
        struct vc *vc;
    } ends[SEAT_KEEPS];
};

static softcuda_seat *seats;

/* The seats for waits, by lane.  The waits of one lane end in order. */
static softcuda_seat **waiting;
static uint32_t waiting_room;

/* ---- seats --------------------------------------------------------------- */

softcuda_seat *seat_new(void)
{
    softcuda_seat *seat = calloc(1, sizeof(*seat));

    if (seat != NULL) {
        seat->lane = lane_take();
        seat->born = lane_last(seat->lane);
        seat->next = seats;
        seats = seat;
    }
    return seat;
}

/* The seat stays until seats_forget(), because clocks may still have its
 * epochs. */
void seat_free(softcuda_seat *seat)
{
    if (seat != NULL) {
        seat->dead = true;
    }
}

static void destroy(softcuda_seat *seat)
{
    for (uint32_t i = 0; i < SEAT_KEEPS; i++) {
        vc_drop(seat->ends[i].vc);
    }
    lane_give(seat->lane);
    free(seat);
}

void seats_forget(void)
{
    for (softcuda_seat **s = &seats; *s != NULL;) {
        softcuda_seat *seat = *s;

        if (seat->dead) {
            *s = seat->next;
            destroy(seat);
        } else {
            s = &seat->next;
        }
    }
}

uint64_t seat_next(softcuda_seat *seat)
{
    return lane_next(seat->lane);
}

struct stamp seat_stamp(const softcuda_seat *seat, uint64_t epoch)
{
    return (struct stamp){ NULL, seat->lane, epoch };
}

/* The clock of the last end up to the epoch.  If that is not kept any more, it
 * is the clock of the oldest end that is. */
static const struct vc *clock_of(const softcuda_seat *seat, uint64_t epoch)
{
    const uint64_t kept = seat->n < SEAT_KEEPS ? seat->n : SEAT_KEEPS;
    const struct vc *oldest = NULL;

    for (uint64_t i = 0; i < kept; i++) {
        const uint64_t at = (seat->n - 1 - i) % SEAT_KEEPS;

        if (seat->ends[at].epoch <= epoch) {
            return seat->ends[at].vc;
        }
        oldest = seat->ends[at].vc;
    }
    return oldest;
}

void seats_close(struct vc **vc_p)
{
    for (const softcuda_seat *seat = seats; seat != NULL; seat = seat->next) {
        const uint64_t epoch = vc_get(*vc_p, seat->lane);

        if (epoch > seat->born) {
            vc_add(vc_p, clock_of(seat, epoch));
        }
    }
}

static void close_end(softcuda_seat *seat, uint64_t epoch, struct vc *vc)
{
    const uint64_t at = seat->n++ % SEAT_KEEPS;

    vc_drop(seat->ends[at].vc);
    seat->ends[at].epoch = epoch;
    seat->ends[at].vc = vc_ref(vc);
}

static softcuda_seat *seat_of(uint32_t lane)
{
    while (lane >= waiting_room) {
        const uint32_t before = waiting_room;

        waiting = op_grow(waiting, &waiting_room, sizeof(softcuda_seat *));
        memset(waiting + before, 0,
               (waiting_room - before) * sizeof(softcuda_seat *));
    }
    if (waiting[lane] == NULL) {
        waiting[lane] = seat_new();
        if (waiting[lane] == NULL) {
            abort(); /* an order with holes would report false races */
        }
    }
    return waiting[lane];
}

struct stamp seat_wait(struct op *op)
{
    op->seat = seat_of(op->at.lane);
    op->seat_epoch = seat_next(op->seat);
    return seat_stamp(op->seat, op->seat_epoch);
}

void seat_waited(const struct op *op)
{
    close_end(op->seat, op->seat_epoch, op->at.vc);
}

/* ---- visits -------------------------------------------------------------- */

static void visit_free(struct shared *shared)
{
    softcuda_visit *visit = (softcuda_visit *)(void *)shared;

    for (uint32_t i = 0; i < visit->n; i++) {
        shared_drop(&visit->joined[i]->shared);
    }
    free(visit->joined);
    vc_drop(visit->inflow);
    vc_drop(visit->reads.at.vc);
    vc_drop(visit->writes.at.vc);
    shared_drop((struct shared *)(void *)visit->call);
    free(visit);
}

softcuda_visit *visit_new(softcuda_call *call, CUcontext ctx)
{
    softcuda_visit *visit = calloc(1, sizeof(*visit));

    if (visit == NULL) {
        return NULL;
    }
    visit->shared = (struct shared){ 1, visit_free };
    visit->call = call;
    shared_ref((struct shared *)(void *)call);
    visit->ctx = ctx;
    return visit;
}

void visit_is(const softcuda_visit *visit, struct op *who, const struct op *op)
{
    stamp_set(&who->at, &op->at);
    who->stream = op->stream;
    who->graph = op->graph;
    who->node = op->node;
    who->own.kind = WORK_CALL;
    who->own.u.rendezvous.name = visit->call->name;
    who->work = &who->own;
}

void visit_arrive(softcuda_visit *visit, const struct op *op)
{
    visit->arrived = true;
    visit->arrived_ns = op->ready_ns;
    if (soft.set.races) {
        seats_close(&visit->reads.at.vc);
    }
}

struct op *visit_counts(softcuda_visit *visit, uint32_t i)
{
    softcuda_rendezvous *rendezvous = visit->joined[i];
    struct op *op = rendezvous->mark.op;

    rendezvous->here++;
    if (rendezvous->released) {
        return NULL;
    }
    if (visit->arrived_ns > op->ready_ns) {
        op->ready_ns = visit->arrived_ns;
    }
    if (rendezvous->here < rendezvous->places) {
        return NULL;
    }
    rendezvous->released = true;
    return op;
}

/* From now on the visit's end has its own clock. */
void visit_leave(softcuda_visit *visit)
{
    close_end(visit->call->seat, visit->epoch, visit->inflow);
}

/* ---- rendezvous ------------------------------------------------------- */

/* Whether no context is lost.  The streams of a lost context do nothing any
 * more. */
static bool all_are_well(const softcuda_rendezvous *rendezvous)
{
    for (uint32_t i = 0; i < rendezvous->places; i++) {
        if (rendezvous->visits[i] == NULL ||
            rendezvous->visits[i]->ctx->sticky != CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

uint64_t rendezvous_run(softcuda_rendezvous *rendezvous,
                        rendezvous_touch_fn *touch)
{
    uint64_t bytes = 0, cost = 0;
    bool held = !rendezvous->failed && all_are_well(rendezvous);

    if (held) {
        rendezvous->touch = touch;
        rendezvous->from = NULL;
        held = rendezvous->run(rendezvous->user, rendezvous, &bytes);
        rendezvous->touch = NULL;
    }
    if (held && !costs_of_kernel(rendezvous->name, bytes, &cost)) {
        cost = RENDEZVOUS_NS + bytes / RENDEZVOUS_BYTES_PER_NS;
    }
    rendezvous->over(rendezvous->user, held);
    return cost;
}

bool rendezvous_touch(softcuda_rendezvous *rendezvous, uint32_t place,
                      const void *address, size_t bytes, int what)
{
    softcuda_visit *visit = rendezvous->visits[place];
    struct op *who = &visit->reads;

    if (what == SOFTCUDA_WRITE || what == SOFTCUDA_COPY_TO) {
        who = &visit->writes;
        if (soft.set.races) {
            vc_add(&who->at.vc, visit->reads.at.vc);
            vc_add(&who->at.vc, visit->inflow);
        }
    }
    if (!rendezvous->touch(who, visit->ctx, &rendezvous->from, address, bytes,
                           what)) {
        visit->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        return false;
    }
    return true;
}

void rendezvous_flow(softcuda_rendezvous *rendezvous, uint32_t from,
                     uint32_t to)
{
    vc_join(&rendezvous->visits[to]->inflow,
            &rendezvous->visits[from]->reads.at);
}
