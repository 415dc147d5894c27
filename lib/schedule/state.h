/*
 * state.h - what a schedule is made of; lib/schedule only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_STATE_H
#define GH_SCHEDULE_STATE_H

#include "schedule/schedule.h"
#include "schedule/sequence.h"
#include "schedule/walk.h"

/* A pair of chunks, either of which may be GH_NO_CHUNK, ready to be run. */
struct gh_pairing {
    uint32_t forward, backward;
    bool early;
    gh_overlap_order order; /* of the walk */
    struct gh_tasks tasks;
    struct gh_walk walk;
    uint64_t hash; /* of the sequence */
    struct gh_forecast forecast, fixed; /* zero: the times are not known */
    void **timers; /* two for each task; NULL: it was not measured */
};

/* When `auto` knows the times of nodes. */
enum gh_timing {
    GH_TIMING_NEVER,  /* it is not auto, or cannot be */
    GH_TIMING_WAITS,  /* for a step in which graphs are replayed */
    GH_TIMING_TAKES,  /* in this step */
    GH_TIMING_SETTLED
};

struct gh_schedule {
    const struct gh_plan *plan;
    struct gh_device *dev; /* NULL: no driver, so all is serial */
    struct gh_capture *capture;
    struct gh_schedule_options options;

    struct gh_pairing **pairings;
    uint32_t n_pairings, room;
    uint32_t last; /* where the next run is looked for first */

    void *marks[GH_MARKS];
    void *own_comm;                /* NULL: every host had one */
    void *known[2];                /* streams that the driver has been asked
                                      about, by gh_lane */
    bool is_known[2];
    bool running;

    enum gh_timing timing;
    uint64_t taken_at; /* the step of GH_TIMING_TAKES */
    double *ns;        /* by gh_task.cell, when it is settled */
    gh_overlap_stats stats;
};

/* times.c: moves the timing on, before a run.  Blocks when it settles. */
gh_status gh_times_turn(struct gh_schedule *s, const gh_overlap_pair *pair,
                        gh_error *err);
/* The order is fixed from now on, whatever was measured. */
void gh_times_forget(struct gh_schedule *s);
/* Events around the tasks of a pairing that is to be measured, and whether
 * it is in this run. */
bool gh_times_begin(struct gh_schedule *s, struct gh_pairing *p);
void gh_times_free(struct gh_schedule *s, struct gh_pairing *p);

/* pairing.c */
gh_status gh_pairing_find(struct gh_schedule *s, const gh_overlap_pair *pair,
                          struct gh_pairing **pairing_p, gh_error *err);
void gh_pairings_free(struct gh_schedule *s);

#endif
