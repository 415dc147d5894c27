/*
 * needs.c - what a host must be able to run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

/* Whether the segment holds only a piece of some layer.  Segments follow each
 * other, so a neighbour then holds another piece of it. */
static bool shares_a_layer(const struct gh_plan *plan, uint32_t i)
{
    const gh_segment *segments = plan->segments;

    return (i > 0 &&
            segments[i - 1].last_layer == segments[i].first_layer) ||
           (i + 1 < plan->n_segments &&
            segments[i + 1].first_layer == segments[i].last_layer);
}

uint32_t gh_plan_needs(const struct gh_plan *plan, uint32_t segment)
{
    const gh_segment *s = &plan->segments[segment];
    uint32_t needs = s->first_layer != s->last_layer ? GH_CAN_CHUNKS : 0;

    if (shares_a_layer(plan, segment)) {
        needs |= GH_CAN_PARTS;
    }
    return needs != 0 ? needs : GH_CAN_LAYERS;
}
