/*
 * pinned_pattern.h - what new pinned memory holds, and where it still holds it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_PINNED_PATTERN_H
#define SOFTCUDA_PINNED_PATTERN_H

#include "softcuda/engine/alloc.h"

#include <stdbool.h>
#include <stdint.h>

/* Fills new memory.  Each seed fills it differently. */
void pinned_pattern_fill(struct alloc *alloc, uint64_t seed);
/* Narrows the range to the first `least` bytes or more of it, in whole words,
 * that hold what pinned_pattern_fill() put there.  False: there are none. */
bool pinned_pattern_find(const struct alloc *alloc, struct hole *range,
                         size_t least);

#endif
