/*
 * pipeline_schedule.h - which layers a stage has, and what it does when.
 *
 * The library's tables of schedules are linked into the engine; sessions have
 * no part in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PIPELINE_SCHEDULE_H
#define ENGINE_PIPELINE_SCHEDULE_H

#include "step/options.h"

#include "lib/pipeline/pipeline.h"

/* Whether the name is that of a schedule, and not of a file. */
bool pipeline_is_named(const char *schedule);

/* Takes from a file what options do not say: chunks, placement, microbatches.
 * Returns 0, or -1 with a sentence. */
int pipeline_complete(struct options *options, char *text, size_t text_bytes);

/* Makes and checks the schedule for a number of microbatches.  The caller frees
 * it.  Returns 0, or -1 with a sentence. */
int pipeline_schedule(const struct options *options, int count,
                      struct gh_pipeline **schedule_p, char *text,
                      size_t text_bytes);

/* The schedule's name, or its file. */
const char *pipeline_schedule_name(const struct options *options);
/* The share of a step of `count` microbatches in which stages are idle, on a
 * clock where a backward takes two forwards and a message no time.  Returns 0
 * if there is no such schedule. */
double pipeline_idle(const struct options *options, int count);
/* The same, where passes take `times`. */
double pipeline_idle_of(const struct options *options, int count,
                        const struct gh_pipeline_times *times);

/* Layers of a part of the model. */
int pipeline_layers(const struct options *options, int part);
/* Narrows the whole model's config to what this rank's stage has. */
void pipeline_share(const struct options *options, struct config *config);
/* The stage that has the head. */
int pipeline_head_stage(const struct options *options);

/* Whether the library knows the schedule's slots for any number of
 * microbatches. */
bool pipeline_is_interleaved(const struct options *options);
/* The most microbatches that are in flight in each chunk of this rank's stage,
 * for the numbers of microbatches that are asked for. */
void pipeline_slots(const struct options *options, uint32_t slots[MAX_CHUNKS]);

#endif
