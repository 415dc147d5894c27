/*
 * pipeline.c - the tables of schedules.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdlib.h>

static const char *const names[GH_ACTIONS] = {
    [GH_ACTION_FORWARD] = "forward",
    [GH_ACTION_BACKWARD] = "backward",
    [GH_ACTION_INPUTS] = "inputs",
    [GH_ACTION_WEIGHTS] = "weights",
};

const char *gh_action_name(enum gh_action_kind kind)
{
    return names[kind];
}

gh_status gh_pipeline_new(uint32_t n_stages, uint32_t n_chunks,
                          uint32_t n_microbatches, enum gh_placement placement,
                          struct gh_pipeline **pipeline_p, gh_error *err)
{
    struct gh_pipeline *pipeline;

    if (n_stages == 0 || n_stages > GH_PIPELINE_STAGES || n_chunks == 0 ||
        n_chunks > GH_PIPELINE_CHUNKS || n_microbatches == 0 ||
        n_microbatches > GH_PIPELINE_MICROBATCHES ||
        n_stages * n_chunks > GH_PIPELINE_PASSES / n_microbatches) {
        return gh_fail(err, GH_ERR_INVALID,
                       "a schedule of %u stages with %u chunks and %u "
                       "microbatches: give 1 to %u stages, 1 to %u chunks, 1 to "
                       "%u microbatches, and %u passes at most",
                       n_stages, n_chunks, n_microbatches, GH_PIPELINE_STAGES,
                       GH_PIPELINE_CHUNKS, GH_PIPELINE_MICROBATCHES,
                       GH_PIPELINE_PASSES);
    }
    pipeline = calloc(1, sizeof(*pipeline) +
                             n_stages * sizeof(pipeline->stages[0]));
    if (pipeline == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u stages",
                       n_stages);
    }
    pipeline->n_stages = n_stages;
    pipeline->n_chunks = n_chunks;
    pipeline->n_microbatches = n_microbatches;
    pipeline->placement = placement;
    *pipeline_p = pipeline;
    return GH_OK;
}

void gh_pipeline_free(struct gh_pipeline *pipeline)
{
    for (uint32_t i = 0; pipeline != NULL && i < pipeline->n_stages; i++) {
        free(pipeline->stages[i].actions);
    }
    free(pipeline);
}

gh_status gh_pipeline_add(struct gh_pipeline *pipeline, uint32_t stage,
                          const struct gh_action *action, gh_error *err)
{
    struct gh_stage *to = &pipeline->stages[stage];

    if (to->n == to->room) {
        const uint32_t room = to->room == 0 ? 64 : 2 * to->room;
        struct gh_action *more =
            realloc(to->actions, room * sizeof(*to->actions));

        if (more == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY,
                           "no memory for %u actions of stage %u", room, stage);
        }
        to->actions = more;
        to->room = room;
    }
    to->actions[to->n++] = *action;
    return GH_OK;
}

static bool is_reversed(const struct gh_pipeline *pipeline, uint32_t chunk)
{
    return pipeline->placement == GH_PLACED_V && chunk % 2 == 1;
}

uint32_t gh_pipeline_part(const struct gh_pipeline *pipeline, uint32_t stage,
                          uint32_t chunk)
{
    return chunk * pipeline->n_stages + (is_reversed(pipeline, chunk)
                                             ? pipeline->n_stages - 1 - stage
                                             : stage);
}

uint32_t gh_pipeline_stage(const struct gh_pipeline *pipeline, uint32_t part)
{
    const uint32_t at = part % pipeline->n_stages;

    return is_reversed(pipeline, part / pipeline->n_stages)
               ? pipeline->n_stages - 1 - at
               : at;
}

uint32_t gh_pipeline_in_flight(const struct gh_pipeline *pipeline,
                               uint32_t stage, uint32_t chunk)
{
    const struct gh_stage *s = &pipeline->stages[stage];
    uint32_t now = 0, most = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct gh_action *a = &s->actions[i];

        if (a->chunk != chunk || a->kind == GH_ACTION_INPUTS) {
            continue;
        }
        now += a->kind == GH_ACTION_FORWARD ? 1 : UINT32_MAX;
        most = now > most ? now : most;
    }
    return most;
}
