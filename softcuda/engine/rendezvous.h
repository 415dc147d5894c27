/*
 * rendezvous.h - rendezvous of several streams: who is there, and what they
 * know.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RENDEZVOUS_H
#define SOFTCUDA_RENDEZVOUS_H

#include "softcuda/engine/op.h"
#include "softcuda/collectives.h"

/* Lets a rendezvous touch memory for one of its visits, as a kernel of that
 * context would.  `from_p` keeps the source of a copy until its destination is
 * touched. */
typedef bool rendezvous_touch_fn(const struct op *op, CUcontext ctx,
                                 const char **from_p, const void *address,
                                 size_t bytes, int what);

struct softcuda_visit {
    struct shared shared;
    softcuda_call *call;
    CUcontext ctx;
    struct mark begin;
    bool arrived;
    uint64_t arrived_ns;
    uint64_t epoch;    /* of the seat */
    struct vc *inflow; /* what the rendezvous held so far brought */
    /* The ops in whose name it reads and writes: its begin, and its end. */
    struct op reads, writes;
    softcuda_rendezvous **joined;
    uint32_t n, room;
};

struct softcuda_rendezvous {
    struct shared shared;
    const char *name;
    struct mark mark;
    uint32_t places, here;
    bool failed, released;
    softcuda_visit **visits;
    softcuda_rendezvous_fn *run;
    softcuda_over_fn *over;
    void *user;
    rendezvous_touch_fn *touch; /* set while the rendezvous is held */
    const char *from;
};

softcuda_seat *seat_new(void);
void seat_free(softcuda_seat *seat);
/* The epoch of a new visit, and its stamp on the seat's lane. */
uint64_t seat_next(softcuda_seat *seat);
struct stamp seat_stamp(const softcuda_seat *seat, uint64_t epoch);
/* Gives an op that waits for a word of memory an end that others come after.
 * The op must have its place. */
struct stamp seat_wait(struct op *op);
/* The op has gone on, and its clock is complete. */
void seat_waited(const struct op *op);
/* Adds what the ends of visits have brought that the clock comes after. */
void seats_close(struct vc **vc_p);
/* Forgets the seats that were freed.  No earlier access counts any more. */
void seats_forget(void);

/* NULL when there is no memory. */
softcuda_visit *visit_new(softcuda_call *call, CUcontext ctx);
/* Fills in `who`, in whose name the visit accesses memory. */
void visit_is(const softcuda_visit *visit, struct op *who, const struct op *op);
/* Notes that the visit's stream has come to it.  visit_counts() then gives, for
 * each of its rendezvous, the operation if no visit is missing any more, or
 * NULL. */
void visit_arrive(softcuda_visit *visit, const struct op *op);
struct op *visit_counts(softcuda_visit *visit, uint32_t i);
/* Lets the visit's stream go on. */
void visit_leave(softcuda_visit *visit);

uint64_t rendezvous_run(softcuda_rendezvous *rendezvous,
                        rendezvous_touch_fn *touch);
bool rendezvous_touch(softcuda_rendezvous *rendezvous, uint32_t place,
                      const void *address, size_t bytes, int what);
void rendezvous_flow(softcuda_rendezvous *rendezvous, uint32_t from,
                     uint32_t to);

#endif
