/*
 * needs.c - what a host must be able to run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

/* Whether a layer is cut between two segments that follow each other.  The
 * embedding and the head are outside of it. */
static bool cuts_a_layer(const gh_segment *before, const gh_segment *behind)
{
    return before->last_layer == behind->first_layer &&
           before->last_part != GH_PART_EMBEDDING &&
           behind->first_part != GH_PART_HEAD;
}

/* Whether the segment holds only a piece of some layer. */
static bool shares_a_layer(const struct gh_plan *plan, uint32_t i)
{
    const gh_segment *segments = plan->segments;

    return (i > 0 && cuts_a_layer(&segments[i - 1], &segments[i])) ||
           (i + 1 < plan->n_segments &&
            cuts_a_layer(&segments[i], &segments[i + 1]));
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
