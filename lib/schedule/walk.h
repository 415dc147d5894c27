/*
 * walk.h - a sequence made ready to be issued: waits, marks, releases.
 *
 * Pure functions.  A lane waits for the other where a task follows one there,
 * unless an earlier wait has covered that; so a wait that is left out is a
 * race.  lib/schedule/run.c issues what is found here and decides nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_WALK_H
#define GH_SCHEDULE_WALK_H

#include <graphhooks/overlap.h>

#include "schedule/tasks.h"

/* What a lane waits for.  A chain waits for its own events before it records
 * them again, so two for each chain are enough. */
enum gh_mark {
    GH_MARK_NONE,
    GH_MARK_BEGIN, /* what was on the compute stream before the run */
    GH_MARK_END,   /* what the comm lane holds when all is issued */
    GH_MARK_CHAIN  /* and three more: 2 * backward + lane of the task */
};
#define GH_MARKS (GH_MARK_CHAIN + 4)

struct gh_step {
    uint32_t task;
    gh_lane lane;      /* on which it is issued */
    uint8_t wait;      /* enum gh_mark, of the other lane */
    uint8_t mark;      /* recorded behind it; GH_MARK_NONE: nobody waits */
    bool flushes;      /* before it commits that wait are issued */
    bool holds;        /* the next one flushes: its passes need not */
    uint32_t flags;    /* GH_NODE_* */
    uint32_t release;  /* the first in gh_walk.releases */
    uint32_t n_release;
};

struct gh_walk {
    struct gh_step *steps;
    uint32_t n;
    gh_overlap_release *releases;
    uint32_t n_releases;
    uint32_t waits; /* those of GH_MARK_BEGIN and at the end too */
    bool begins;    /* GH_MARK_BEGIN is waited for */
    bool joins;     /* in the end the compute lane has to wait for the other */
};

/* `serial`: all on the compute lane.  GH_ERR_NO_MEMORY. */
gh_status gh_walk_make(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, const uint32_t *sequence,
                       bool serial, struct gh_walk *walk, gh_error *err);
void gh_walk_free(struct gh_walk *walk);

/* ---- release.c ----------------------------------------------------------- */

/* What one node writes and others read, in one run. */
#define GH_MOST_READERS (2 * GH_FAMILY_NODES)
struct gh_life {
    gh_overlap_release what;
    bool forward; /* of the forward chunk; else of the backward one */
    uint32_t ends; /* walk.c's: behind which step */
    uint32_t n_readers;
    uint32_t readers[GH_MOST_READERS]; /* tasks */
};

/* Those that end in the run; returns how many.  With `lives` NULL it only
 * counts. */
uint32_t gh_lives_find(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, struct gh_life *lives);

#endif
