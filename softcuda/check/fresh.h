/*
 * fresh.h - what new pinned memory holds, and where it still holds it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_FRESH_H
#define SOFTCUDA_FRESH_H

#include "softcuda/engine/alloc.h"

#include <stdbool.h>
#include <stdint.h>

/* Fills new memory.  Each seed fills it differently. */
void fresh_fill(struct alloc *alloc, uint64_t seed);
/* Narrows the range to the first `least` bytes or more of it, in whole words,
 * that hold what fresh_fill() put there.  False: there are none. */
bool fresh_find(const struct alloc *alloc, struct hole *range, size_t least);

#endif
