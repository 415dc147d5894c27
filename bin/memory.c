/*
 * memory.c - see memory.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory.h"

#include <inttypes.h>
#include <stdio.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* A chunk without a graph has no inputs. */
static uint32_t slots_of(const struct gh_plan *plan, uint32_t chunk,
                         const struct foresight *foresight,
                         const struct pipeline_forecast *pipeline)
{
    for (uint32_t s = 0; s < plan->n_segments; s++) {
        if (plan->segments[s].chunk == chunk &&
            plan->segments[s].mode == GH_SEGMENT_GRAPHED) {
            return pipeline != NULL ? pipeline_slots(pipeline, chunk)
                                    : foresight->policy.in_flight;
        }
    }
    return 0;
}

/* Inputs of graphs in all slots of a chunk. */
static uint64_t inputs_of(const struct memory_sizes *sizes, uint32_t chunk,
                          uint32_t slots)
{
    return sizes->n_inputs == 0
               ? 0
               : slots * sizes->inputs[sizes->n_inputs > 1 ? chunk : 0];
}

static bool is_given(const struct memory_sizes *sizes)
{
    return sizes->n_inputs != 0 || sizes->stash != 0 || sizes->window != 0;
}

static uint64_t sum_all(const struct gh_plan *plan,
                        const struct memory_sizes *sizes,
                        const struct foresight *foresight,
                        const struct pipeline_forecast *pipeline)
{
    uint64_t all =
        foresee_rings(plan, foresight) + sizes->stash + sizes->window;

    for (uint32_t c = 0; c < plan->n_chunks; c++) {
        all += inputs_of(sizes, c, slots_of(plan, c, foresight, pipeline));
    }
    return all;
}

void memory_print(const struct gh_plan *plan, const struct memory_sizes *sizes,
                  const struct foresight *foresight,
                  const struct pipeline_forecast *pipeline)
{
    if (!is_given(sizes)) {
        return;
    }
    printf("\nmemory of the library%s:\n",
           pipeline != NULL ? ", in a stage with the most slots" : "");
    for (uint32_t c = 0; c < plan->n_chunks && sizes->n_inputs != 0; c++) {
        const uint32_t slots = slots_of(plan, c, foresight, pipeline);

        printf("  chunk %u: %.1f MiB, inputs of graphs in %u slot%s\n", c,
               mib(inputs_of(sizes, c, slots)), slots, slots == 1 ? "" : "s");
    }
    printf("  rings of offload %.1f MiB, stash %.1f, window of the exchange "
           "%.1f\n  in all %.1f MiB, and what the driver takes for graphs\n",
           mib(foresee_rings(plan, foresight)), mib(sizes->stash),
           mib(sizes->window), mib(sum_all(plan, sizes, foresight, pipeline)));
}

void memory_print_json(const struct gh_plan *plan,
                       const struct memory_sizes *sizes,
                       const struct foresight *foresight,
                       const struct pipeline_forecast *pipeline)
{
    if (!is_given(sizes)) {
        return;
    }
    printf("\"memory\": {\"chunks\": [");
    for (uint32_t c = 0; c < plan->n_chunks; c++) {
        const uint32_t slots = slots_of(plan, c, foresight, pipeline);

        printf("%s{\"slots\": %u, \"input_bytes\": %" PRIu64 "}",
               c > 0 ? ", " : "", slots, inputs_of(sizes, c, slots));
    }
    printf("], \"ring_bytes\": %" PRIu64 ", \"stash_bytes\": %" PRIu64
           ", \"window_bytes\": %" PRIu64 ", \"bytes\": %" PRIu64 "}, ",
           foresee_rings(plan, foresight), sizes->stash, sizes->window,
           sum_all(plan, sizes, foresight, pipeline));
}
