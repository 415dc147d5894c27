/*
 * meet.h - meetings of several streams: who is there, and what they know.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MEET_H
#define SOFTCUDA_MEET_H

#include "softcuda/meeting.h"
#include "softcuda/op.h"

/* How a meeting touches memory for one of its visits: as a kernel of that
 * context would.  `from_p` keeps the source of a copy until its end is
 * touched. */
typedef bool meet_touch_fn(const struct op *op, CUcontext ctx,
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
    struct vc *inflow; /* of the meetings that were held */
    /* As whom it reads and writes: its begin, and its end. */
    struct op reads, writes;
    softcuda_meeting **meetings;
    uint32_t n, room;
};

struct softcuda_meeting {
    struct shared shared;
    const char *name;
    struct mark mark;
    uint32_t places, here;
    bool failed, released;
    softcuda_visit **visits;
    softcuda_meeting_fn *run;
    softcuda_over_fn *over;
    void *user;
    meet_touch_fn *touch; /* while it is held */
    const char *from;
};

softcuda_seat *seat_new(void);
void seat_free(softcuda_seat *seat);
/* The epoch of a new visit, and what it is on the seat's lane. */
uint64_t seat_next(softcuda_seat *seat);
struct stamp seat_stamp(const softcuda_seat *seat, uint64_t epoch);
/* The op stands still until a word of memory is written: what comes after it
 * comes after this.  Its place is known. */
struct stamp seat_wait(struct op *op);
/* It has gone on, and knows what its clock says. */
void seat_waited(const struct op *op);
/* Adds what the ends of visits that it comes after have brought. */
void seats_close(struct vc **vc_p);
/* No access was before now. */
void seats_forget(void);

/* NULL when there is no memory. */
softcuda_visit *visit_new(softcuda_call *call, CUcontext ctx);
/* Fills in as whom the visit accesses memory. */
void visit_is(const softcuda_visit *visit, struct op *who, const struct op *op);
/* The visit's stream has come to it.  Then, for each of its meetings: the
 * operation that has no visit left to wait for, or NULL. */
void visit_arrive(softcuda_visit *visit, const struct op *op);
struct op *visit_counts(softcuda_visit *visit, uint32_t i);
/* The visit's stream goes on. */
void visit_leave(softcuda_visit *visit);

uint64_t meet_run(softcuda_meeting *meeting, meet_touch_fn *touch);
bool meet_touch(softcuda_meeting *meeting, uint32_t place, const void *address,
                size_t bytes, int what);
void meet_flow(softcuda_meeting *meeting, uint32_t from, uint32_t to);

#endif
