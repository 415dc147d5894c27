/*
 * borders.h - where the tensors are that cross from one segment to another.
 *
 * The plan names these tensors.  All of them are in the set, so the parts on
 * the other side find them whoever ran the parts before.  Most parts hand on
 * only a hidden state; those of a mixture of experts hand on more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_BORDERS_H
#define ENGINE_BORDERS_H

#include "model/buffers.h"

#include <graphhooks/border.h>

enum {
    MAX_BORDER = 4 /* the most buffers of one tensor */
};

/* Writes the buffers of a tensor, with their names, and returns how many there
 * are.  There are none if the engine has already added the shared expert's
 * output to the residual. */
int border_buffers(const struct model *model, const struct set *set,
                   const gh_border *border, gh_buffer list[MAX_BORDER]);

/* Writes the buffers of its gradient.  Integers have none. */
int border_gradients(const struct model *model, const struct set *set,
                     const gh_border *border, gh_buffer list[MAX_BORDER]);

/* The part whose backward writes the tensor's gradient; -1: it has none. */
int border_gradient_part(const struct model *model, const gh_border *border);

#endif
