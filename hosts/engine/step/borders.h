/*
 * borders.h - where the tensors lie that cross from one segment to another.
 *
 * The plan says which tensors those are.  All of them lie in the set, so the
 * parts on the other side find them whoever ran the ones before.  Most parts
 * hand on a hidden state alone; those of a mixture of experts hand on more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_BORDERS_H
#define ENGINE_BORDERS_H

#include "model/buffers.h"

#include <graphhooks/border.h>

enum {
    MAX_BORDER = 4 /* buffers of one tensor */
};

/* The buffers of a tensor, named.  Returns how many: none where the engine
 * has added the shared expert's output to the residual already. */
int border_buffers(const struct model *model, const struct set *set,
                   const gh_border *border, gh_buffer list[MAX_BORDER]);

/* Those of its gradient: none for whole numbers. */
int border_gradients(const struct model *model, const struct set *set,
                     const gh_border *border, gh_buffer list[MAX_BORDER]);

/* The part whose backward writes the tensor's gradient; -1: it has none. */
int border_gradient_part(const struct model *model, const gh_border *border);

#endif
