/*
 * left.h - what eager passes have left for those on the other side.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_LEFT_H
#define GH_PASS_LEFT_H

#include "pass/pass.h"

/* The named outputs of a pass that ran eagerly.  There is one for each entry,
 * and one for each (segment, direction) of passes without a slot. */
struct gh_left {
    uint64_t ran;  /* the number of the pass, from 1; 0: none */
    uint64_t step; /* this and the next two: only for passes without a slot */
    uint32_t microbatch;
    uint32_t flags;
    uint32_t n, room;
    gh_buffer *outputs;
};

static inline struct gh_left *gh_left_at(const struct gh_capture *c,
                                         uint32_t segment,
                                         gh_direction direction,
                                         uint32_t slot)
{
    const uint32_t slots = c->options.max_slots;

    return &c->beside.left[((size_t)segment * GH_DIRECTIONS + direction) *
                               (slots + 1) +
                           (slot == GH_SLOT_NONE ? slots : slot)];
}

#endif
