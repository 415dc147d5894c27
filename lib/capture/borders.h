/*
 * borders.h - what passes leave behind for those on the other side.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_BORDERS_H
#define GH_CAPTURE_BORDERS_H

#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_capture;

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


gh_status gh_borders_create(struct gh_capture *c, gh_error *err);
void gh_borders_destroy(struct gh_capture *c);
/* Whether a pass of the segment has run eagerly. */
bool gh_borders_any(const struct gh_capture *c, uint32_t segment);
/* Keeps the named outputs of a pass that ran eagerly. */
void gh_borders_keep(struct gh_capture *c, const gh_pass *pass);

#endif
