/*
 * pass_times.h - how long the passes of a stage take, by events around them,
 * and how long the stages are idle.
 *
 * A stage is busy from where a pass may begin, as what it works on is there, to
 * its end.  A step is from where a stage begins it to the last end of a pass on
 * any stage.  Stages begin a step within some microseconds of each other, and
 * their devices have no common clock: so a step takes as long as that of the
 * stage with the longest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASS_TIMES_H
#define ENGINE_PASS_TIMES_H

#include "step/trainer.h"

#include "lib/pipeline/pipeline.h"

/* Of one stage, in milliseconds. */
struct stage_time {
    double step, busy;
    double pass[GH_ACTIONS]; /* the mean of each kind; 0: it has none */
};

struct pass_times;

/* Returns NULL: dev->error.  pass_times_close() takes NULL. */
struct pass_times *pass_times_open(struct device *dev);
void pass_times_close(struct pass_times *times);

/* Begins a step on the stream of the stage's passes. */
void pass_times_begin_step(struct pass_times *times, CUstream stream);
/* Called before and after each pass. */
void pass_times_begin(struct pass_times *times, enum gh_action_kind kind,
                      CUstream stream);
void pass_times_end(struct pass_times *times, CUstream stream);
/* Reads the times of a step that has ended.  Failures stick to the device. */
void pass_times_read(const struct pass_times *times, struct stage_time *time);

/* The share of a step in which stages are idle. */
double pass_times_idle(const struct stage_time *stages, int n);
/* What the clock takes of a step, with room for the n stages: the mean time of
 * each kind of pass, and how much longer a stage is busy than the others. */
struct gh_pipeline_times pass_times_clock(const struct stage_time *stages,
                                          int n, double *room);

#endif
