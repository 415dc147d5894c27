/*
 * generate.c - schedules that need no file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- one forward, one backward ------------------------------------------- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The i-th forward of a stage: groups of microbatches go through all chunks one
 * after the other. */
static struct gh_action forward_at(const struct gh_interleaving *how,
                                   uint32_t n_microbatches, uint32_t i)
{
    const uint32_t group = how->n_chunks > 1 ? how->group : n_microbatches;
    const uint32_t first = i / (group * how->n_chunks) * group;
    const uint32_t size = smaller(group, n_microbatches - first);
    const uint32_t within = i - first * how->n_chunks;

    return (struct gh_action){ .kind = GH_ACTION_FORWARD,
                               .chunk = within / size,
                               .microbatch = first + within % size };
}

/* The i-th backward: the same, from the last chunk to the first. */
static struct gh_action backward_at(const struct gh_interleaving *how,
                                    uint32_t n_microbatches, uint32_t i)
{
    struct gh_action a = forward_at(how, n_microbatches, i);

    a.kind = GH_ACTION_BACKWARD;
    a.chunk = how->n_chunks - 1 - a.chunk;
    return a;
}

static gh_status fill_stage(struct gh_pipeline *pipeline,
                            const struct gh_interleaving *how, uint32_t stage,
                            gh_error *err)
{
    const uint32_t n = pipeline->n_microbatches;
    const uint32_t passes = n * how->n_chunks;
    const uint32_t warmup = (uint32_t)gh_pipeline_warmup(how, stage, passes);
    gh_status status = GH_OK;
    struct gh_action a;

    for (uint32_t i = 0; i < passes + warmup && status == GH_OK; i++) {
        if (i < passes) {
            a = forward_at(how, n, i);
            status = gh_pipeline_add(pipeline, stage, &a, err);
        }
        if (i >= warmup && status == GH_OK) {
            a = backward_at(how, n, i - warmup);
            status = gh_pipeline_add(pipeline, stage, &a, err);
        }
    }
    return status;
}

gh_status gh_pipeline_interleaved(const struct gh_interleaving *how,
                                  uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err)
{
    struct gh_pipeline *pipeline;
    gh_status status = gh_pipeline_check_groups(how, n_microbatches, err);

    if (status == GH_OK) {
        status = gh_pipeline_new(how->n_stages, how->n_chunks, n_microbatches,
                                 GH_PLACED_LOOPED, &pipeline, err);
    }
    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < how->n_stages && status == GH_OK; i++) {
        status = fill_stage(pipeline, how, i, err);
    }
    if (status != GH_OK) {
        gh_pipeline_free(pipeline);
        return status;
    }
    *pipeline_p = pipeline;
    return GH_OK;
}

/* ---- zero bubble --------------------------------------------------------- */

/* One stage of a schedule that is made along a clock on which each pass takes
 * one tick. */
struct progress {
    uint32_t forwards, inputs, weights; /* begun so far */
};

struct made {
    struct gh_pipeline *pipeline;
    struct progress stages[GH_PIPELINE_STAGES];
    struct progress ended[GH_PIPELINE_STAGES]; /* by the tick at hand */
};

/* What a stage does in a tick: a forward, if as few microbatches wait for their
 * inputs as with 1F1B, and no more are in flight than on the first stage; then
 * inputs, as others wait for them; then weights. */
static enum gh_action_kind choose(const struct made *made, uint32_t stage)
{
    const uint32_t last = made->pipeline->n_stages - 1;
    const struct progress *own = &made->stages[stage];
    const uint32_t come = stage == 0 ? made->pipeline->n_microbatches
                                     : made->ended[stage - 1].forwards;
    const uint32_t back = stage == last ? made->ended[stage].forwards
                                        : made->ended[stage + 1].inputs;

    if (own->forwards < come && own->forwards - own->inputs <= last - stage &&
        own->forwards - own->weights <= last) {
        return GH_ACTION_FORWARD;
    }
    if (own->inputs < back && own->inputs < own->forwards) {
        return GH_ACTION_INPUTS;
    }
    return own->weights < own->inputs ? GH_ACTION_WEIGHTS : GH_ACTIONS;
}

static gh_status tick(struct made *made, bool *any, gh_error *err)
{
    const uint32_t n = made->pipeline->n_stages;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n; i++) {
        made->ended[i] = made->stages[i];
    }
    *any = false;
    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        struct progress *own = &made->stages[i];
        uint32_t *const counts[GH_ACTIONS] = {
            [GH_ACTION_FORWARD] = &own->forwards,
            [GH_ACTION_INPUTS] = &own->inputs,
            [GH_ACTION_WEIGHTS] = &own->weights,
        };
        const enum gh_action_kind kind = choose(made, i);

        if (kind != GH_ACTIONS) {
            const struct gh_action a = { .kind = kind,
                                         .microbatch = (*counts[kind])++ };

            status = gh_pipeline_add(made->pipeline, i, &a, err);
            *any = true;
        }
    }
    return status;
}

gh_status gh_pipeline_zero_bubble(uint32_t n_stages, uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err)
{
    struct made *made = calloc(1, sizeof(*made));
    gh_status status;
    bool any = true;

    if (made == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    status = gh_pipeline_new(n_stages, 1, n_microbatches, GH_PLACED_LOOPED,
                             &made->pipeline, err);
    while (status == GH_OK && any) {
        status = tick(made, &any, err);
    }
    if (status == GH_OK) {
        *pipeline_p = made->pipeline;
    } else {
        gh_pipeline_free(made->pipeline);
    }
    free(made);
    return status;
}
