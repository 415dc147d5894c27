/*
 * pipeline.h - a step of a stage of a pipeline, by its schedule.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PIPELINE_H
#define ENGINE_PIPELINE_H

#include "step/pass_times.h"
#include "step/pipeline_schedule.h"
#include "step/trainer.h"

/* Makes what a stage needs; nothing if there is only one.  Returns 0, or -1:
 * dev->error. */
int pipeline_open(struct trainer *trainer);
void pipeline_close(struct trainer *trainer);

/* The most microbatches in flight in a chunk of this stage in a step of
 * `count`; 0 if there is no such schedule. */
int pipeline_in_flight(struct trainer *trainer, int count, int chunk);

/* Issues this stage's actions in a step of `count` microbatches.  Returns 0, or
 * -1 as schedule_step(). */
int pipeline_step(struct trainer *trainer, int count);
/* Reads how long the passes of the step took, which has ended, if
 * trainer->times_passes.  Returns 0, or -1: dev->error. */
int pipeline_times(const struct trainer *trainer, struct stage_time *time);
/* Waits for all that this stage receives in the step.  Nothing if there is only
 * one stage.  Returns 0, or -1: dev->error, which names the stage that sends,
 * the chunk and the microbatch. */
int pipeline_synchronize(const struct trainer *trainer);
/* Adds to a sentence which action this stage was issuing, if it was. */
void pipeline_say_where(const struct trainer *trainer, char *text,
                        size_t text_bytes);

#endif
