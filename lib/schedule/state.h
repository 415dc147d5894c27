/*
 * state.h - the data of a schedule; private to lib/schedule.
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
    gh_overlap_order order; /* that the walk has */
    struct gh_tasks tasks;
    struct gh_walk walk;
    uint64_t hash; /* of the sequence */
    struct gh_forecast forecast, fixed; /* zero while times are not known */
    void **timers; /* two events for each task; NULL: not measured */
};

/* How far `auto` is in measuring the times of nodes. */
enum gh_timing {
    GH_TIMING_NEVER,  /* the order is not auto, or the ranks cannot agree */
    GH_TIMING_WAITS,  /* until a step in which graphs are replayed */
    GH_TIMING_TAKES,  /* this step is measured */
    GH_TIMING_SETTLED /* the times are known */
};

struct gh_schedule {
    const struct gh_plan *plan;
    struct gh_device *dev; /* NULL: no driver, so the order is serial */
    struct gh_capture *capture;
    struct gh_schedule_options options;

    struct gh_pairing **pairings;
    uint32_t n_pairings, room;
    uint32_t last; /* the pairing of the last run: looked at first */

    void *marks[GH_MARKS];
    void *lib_comm_stream;         /* the library's comm stream; NULL: the host
                               has always given one */
    void *known[2];                /* streams that the driver has accepted, by
                                      gh_lane */
    bool is_known[2];
    bool running;

    enum gh_timing timing;
    uint64_t taken_at; /* the step of GH_TIMING_TAKES */
    double *ns;        /* by gh_task.cell; NULL before GH_TIMING_SETTLED */
    bool has_agreed;   /* on how long exchanges took */
    gh_overlap_stats stats;
};

/* schedule.c: events, and a stream for hosts that have none, before the first
 * run that needs them. */
gh_status gh_schedule_make_objects(struct gh_schedule *s, bool needs_comm,
                                   gh_error *err);

/* times.c: advances `timing`; called before each run.  Blocks in the run that
 * reads the times and agrees on them. */
gh_status gh_times_turn(struct gh_schedule *s, const gh_overlap_pair *pair,
                        gh_error *err);
/* Uses the fixed order from now on, and drops what was measured. */
void gh_times_forget(struct gh_schedule *s);
/* Returns whether this run of the pairing is measured, and creates the events
 * for it. */
bool gh_times_begin(struct gh_schedule *s, struct gh_pairing *p);

/* agree.c: whether there is anybody to agree with. */
bool gh_agree_can(const struct gh_schedule *s, const gh_overlap_pair *pair);
/*
 * Replaces each of `n` numbers by its maximum over all ranks.  Blocks.
 *
 * numbers  of this rank; NULL: it has none
 * lacks_p  GH_NO_RANK; or a rank that has none, and nothing was changed
 */
gh_status gh_agree(struct gh_schedule *s, const gh_overlap_pair *pair,
                   double *numbers, uint32_t n, uint32_t *lacks_p,
                   gh_error *err);
/* Of nanoseconds, how many such times make a second; and back.  0 stays 0. */
double gh_inverse(double value);
/* Once, in one step of offload's profile: on the times of exchanges, which
 * offload compares (lib/offload/decide).  Blocks in that run. */
gh_status gh_agree_on_exchanges(struct gh_schedule *s,
                                const gh_overlap_pair *pair, gh_error *err);

/* pairing.c */
gh_status gh_pairing_find(struct gh_schedule *s, const gh_overlap_pair *pair,
                          struct gh_pairing **pairing_p, gh_error *err);

/* state.c */
void gh_times_free(struct gh_schedule *s, struct gh_pairing *p);
void gh_pairing_free(struct gh_schedule *s, struct gh_pairing *p);
void gh_pairings_free(struct gh_schedule *s);

#endif
