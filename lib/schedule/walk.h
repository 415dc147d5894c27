/*
 * walk.h - the steps of a sequence, with their waits, events and releases.
 *
 * Pure functions.  A lane waits for the other one wherever a task depends on a
 * task there, except where an earlier wait covers that.  No wait is redundant:
 * to leave one out is a race.  lib/schedule/run.c issues the steps and decides
 * nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_SCHEDULE_WALK_H
#define GH_SCHEDULE_WALK_H

#include <graphhooks/overlap.h>

#include "schedule/tasks.h"

/* The events that a lane waits for.  Two for each chain are enough, as a chain
 * waits for each of its events before it records it again. */
enum gh_mark {
    GH_MARK_NONE,
    GH_MARK_BEGIN, /* work on the compute stream before the run */
    GH_MARK_END,   /* all work of the run on the comm lane */
    GH_MARK_CHAIN  /* the first of four: GH_MARK_CHAIN + 2 * backward + lane */
};
#define GH_MARKS (GH_MARK_CHAIN + 4)

struct gh_step {
    uint32_t task;
    gh_lane lane;      /* that it is issued on */
    uint8_t wait;      /* enum gh_mark: waited for before it */
    uint8_t mark;      /* enum gh_mark: recorded after it, if a step waits for
                          it */
    bool flushes;      /* delayed commits of offload are issued before it */
    bool holds;        /* the next step flushes, so the passes of this one do
                          not */
    uint32_t flags;    /* GH_NODE_* */
    uint32_t release;  /* index in gh_walk.releases of its first */
    uint32_t n_release;
};

struct gh_walk {
    struct gh_step *steps;
    uint32_t n;
    gh_overlap_release *releases;
    uint32_t n_releases;
    uint32_t waits; /* of a run, with those for GH_MARK_BEGIN and
                       GH_MARK_END */
    bool begins;    /* a step waits for GH_MARK_BEGIN */
    bool joins;     /* at the end the compute lane waits for GH_MARK_END */
};

/* `serial` puts all steps on the compute lane.  GH_ERR_NO_MEMORY. */
gh_status gh_walk_make(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, const uint32_t *sequence,
                       bool serial, struct gh_walk *walk, gh_error *err);
void gh_walk_free(struct gh_walk *walk);

/* ---- release.c ----------------------------------------------------------- */

/* A tensor that one node writes and others read, in one run. */
#define GH_MOST_READERS (2 * GH_FAMILY_NODES)
struct gh_life {
    gh_overlap_release what;
    bool forward; /* it is of the forward chunk, else of the backward one */
    uint32_t ends; /* the step after which it is released; set by walk.c */
    uint32_t n_readers;
    uint32_t readers[GH_MOST_READERS]; /* tasks */
};

/* Finds the tensors that are released in the run, and returns their number.
 * Where `lives` is NULL it only counts. */
uint32_t gh_lives_find(const struct gh_plan *plan,
                       const struct gh_tasks *tasks, struct gh_life *lives);

#endif
