/*
 * pipeline.h - how many slots the chunks of a pipeline's stages need, and how
 * long its stages are idle, before anything has run.
 *
 * The schedules are those of lib/pipeline.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_PIPELINE_H
#define BIN_PIPELINE_H

#include "plan/plan.h"

/* The values of the options; NULL: not given. */
struct pipeline_request {
    const char *pp, *vpp, *group, *microbatches, *schedule, *stage_times;
};

/* The memory that a slot has: for each layer, or 0 where that is not known, for
 * the ends of the model in the chunks that have them, and besides. */
struct slot_bytes {
    uint64_t *layers, embedding, head, rest;
};

struct pipeline_forecast;

/* *forecast_p is NULL where no option is given.  The model that is described has
 * one stage's chunks. */
gh_status pipeline_foresee(const struct pipeline_request *request,
                           const struct gh_plan *plan,
                           const struct slot_bytes *bytes,
                           struct pipeline_forecast **forecast_p,
                           gh_error *err);
/* NULL is allowed in all three.  On standard output; as JSON, a member of an
 * object that is begun, with a comma behind it. */
void pipeline_print(const struct pipeline_forecast *forecast);
void pipeline_print_json(const struct pipeline_forecast *forecast);
/* The slots of a chunk in the stage that has most of it. */
uint32_t pipeline_slots(const struct pipeline_forecast *forecast,
                        uint32_t chunk);
void pipeline_free(struct pipeline_forecast *forecast);

#endif
