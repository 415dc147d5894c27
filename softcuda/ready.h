/*
 * ready.h - the ops that may run, and which of them is next.
 *
 * With seed 0 the one that was issued first.  With any other a generator
 * chooses, by the op or by its lane, and how many run at a call.
 *
 * Invariant: an op in here has unmet == 0 and has not run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_READY_H
#define SOFTCUDA_READY_H

#include "softcuda/op.h"

#include <stdbool.h>
#include <stdint.h>

void ready_seed(uint64_t seed);
void ready_add(struct op *op);
/* An op that is not in here stays out. */
void ready_remove(struct op *op);
bool ready_is_any(void);
/* Whether one more is to run now: by chance, which is the larger the smaller
 * `of` is.  Never where none may. */
bool ready_is_one_more(uint32_t of);
/* The one to run, which stays in; with need, only of those that are marked so.
 * NULL: there is none. */
struct op *ready_choose(uint64_t need);
/* The one that was issued first, but for host functions. */
struct op *ready_first(void);

#endif
