/*
 * plan.h - which parts are captured, and why: pure functions of the model
 * and the options, with no device, no clock and no environment.
 *
 * lib/abi makes a plan when a session opens; lib/capture reads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_PLAN_H
#define GH_PLAN_PLAN_H

#include <graphhooks/plan.h>

/* Bit i: part i.  No bit: whole layers. */
#define GH_SCOPE(part) (UINT32_C(1) << (part))

enum gh_granularity {
    GH_GRANULARITY_PART = 0,
    GH_GRANULARITY_LAYER = 1
};

struct gh_plan {
    gh_segment *segments; /* all chunks, in order */
    uint32_t n_segments;
    uint32_t *chunk_start; /* n_chunks + 1 indices into segments */
    uint32_t n_chunks;
    uint32_t n_layers;
    char **layer_names;
    uint32_t scope;
    enum gh_granularity granularity;
};

const char *gh_part_name(gh_part part);

/* Copies what it needs of the model. */
gh_status gh_plan_make(const gh_model *model, uint32_t scope,
                       enum gh_granularity granularity, struct gh_plan *plan,
                       gh_error *err);
void gh_plan_free(struct gh_plan *plan);

void gh_plan_write(const struct gh_plan *plan, gh_format format,
                   gh_write_fn *write, void *user);

#endif
