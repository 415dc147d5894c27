/*
 * check.c - what makes a schedule legal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which passes of one chunk and microbatch have been, as bits. */
static gh_status take(const struct gh_pipeline *pipeline, uint32_t stage,
                      const struct gh_action *a, unsigned char *seen,
                      gh_error *err)
{
    /* What may have been before an action of each kind. */
    static const unsigned char before[GH_ACTIONS] = {
        [GH_ACTION_FORWARD] = 0,
        [GH_ACTION_BACKWARD] = 1 << GH_ACTION_FORWARD,
        [GH_ACTION_INPUTS] = 1 << GH_ACTION_FORWARD,
        [GH_ACTION_WEIGHTS] = 1 << GH_ACTION_FORWARD | 1 << GH_ACTION_INPUTS,
    };
    static const char *const rules[GH_ACTIONS] = {
        [GH_ACTION_FORWARD] = "is there once, before all other passes of its "
                              "microbatch",
        [GH_ACTION_BACKWARD] = "comes once, after its forward, and in the "
                               "place of inputs and weights",
        [GH_ACTION_INPUTS] = "comes once, after its forward and before its "
                             "weights",
        [GH_ACTION_WEIGHTS] = "comes once, after its inputs",
    };
    char where[32] = "";

    if (*seen == before[a->kind]) {
        *seen |= (unsigned char)(1u << a->kind);
        return GH_OK;
    }
    if (a->line != 0) {
        snprintf(where, sizeof(where), "line %u: ", a->line);
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "%sstage %u of %u: %s of chunk %u, microbatch %u: such a "
                   "pass %s",
                   where, stage, pipeline->n_stages, gh_action_name(a->kind), a->chunk,
                   a->microbatch, rules[a->kind]);
}

static bool is_complete(unsigned char seen)
{
    return seen == (1 << GH_ACTION_FORWARD | 1 << GH_ACTION_BACKWARD) ||
           seen == (1 << GH_ACTION_FORWARD | 1 << GH_ACTION_INPUTS |
                    1 << GH_ACTION_WEIGHTS);
}

static gh_status check_stage(const struct gh_pipeline *pipeline, uint32_t stage,
                             unsigned char *seen, gh_error *err)
{
    const uint32_t passes = pipeline->n_chunks * pipeline->n_microbatches;
    const struct gh_stage *s = &pipeline->stages[stage];
    gh_status status = GH_OK;

    memset(seen, 0, passes);
    for (uint32_t i = 0; i < s->n && status == GH_OK; i++) {
        const struct gh_action *a = &s->actions[i];

        status = take(pipeline, stage, a,
                      &seen[a->chunk * pipeline->n_microbatches +
                            a->microbatch],
                      err);
    }
    for (uint32_t i = 0; i < passes && status == GH_OK; i++) {
        if (!is_complete(seen[i])) {
            return gh_fail(err, GH_ERR_INVALID,
                           "stage %u of %u: of chunk %u, microbatch %u there "
                           "is %s: give a forward and a backward, or inputs "
                           "and weights",
                           stage, pipeline->n_stages,
                           i / pipeline->n_microbatches,
                           i % pipeline->n_microbatches,
                           seen[i] == 0 ? "no pass" : "no whole backward");
        }
    }
    return status;
}

gh_status gh_pipeline_check(const struct gh_pipeline *pipeline, gh_error *err)
{
    static const struct gh_pipeline_times equal = { { 1, 1, 1, 1 }, 0, NULL };
    struct gh_pipeline_clock clock;
    gh_status status = GH_OK;
    unsigned char *seen =
        malloc((size_t)pipeline->n_chunks * pipeline->n_microbatches);

    if (seen == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory to check a schedule");
    }
    for (uint32_t i = 0; i < pipeline->n_stages && status == GH_OK; i++) {
        status = check_stage(pipeline, i, seen, err);
    }
    free(seen);
    return status == GH_OK ? gh_pipeline_run(pipeline, &equal, &clock, err)
                           : status;
}
