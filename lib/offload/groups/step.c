/*
 * step.c - see step.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/step.h"

#include "base/error.h"

#include <stdlib.h>

void gh_offload_step_free(struct gh_offload_step *step)
{
    free(step->runs);
    free(step->host_memory);
}

void gh_offload_script_free(struct gh_offload_script *script)
{
    for (uint32_t s = 0; s < script->n; s++) {
        gh_offload_step_free(&script->steps[s]);
    }
    free(script->steps);
    *script = (struct gh_offload_script){ NULL, 0 };
}

gh_status gh_offload_script_add(struct gh_offload_script *script,
                                struct gh_offload_step step, gh_error *err)
{
    struct gh_offload_step *steps =
        realloc(script->steps, (script->n + (size_t)1) * sizeof(*steps));

    if (steps == NULL) {
        gh_offload_step_free(&step);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a recording");
    }
    steps[script->n++] = step;
    script->steps = steps;
    return GH_OK;
}
