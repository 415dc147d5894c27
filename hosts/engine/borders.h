/*
 * borders.h - what a run of parts hands to the next run.
 *
 * Wherever a graph begins or ends, the parts on the other side find all that
 * they read in the set, under these addresses.  Most parts hand on a hidden
 * state alone; those of a mixture of experts hand on more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_BORDERS_H
#define ENGINE_BORDERS_H

#include "buffers.h"

enum {
    MAX_BORDER = 8
};

struct border {
    const void *address;
    size_t bytes;
    int writer; /* the part that wrote it, or its gradient's part */
};

/* After a part: its hidden state first.  Returns how many. */
int border_after(const struct model *model, const struct set *set, int part,
                 struct border list[MAX_BORDER]);

/* Before a part, the gradients that go backward there. */
int border_before(const struct model *model, const struct set *set, int part,
                  struct border list[MAX_BORDER]);

#endif
