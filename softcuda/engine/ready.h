/*
 * ready.h - the ops that may run, and which of them is next.
 *
 * With seed 0 the op that was issued first is next.  With any other seed a
 * random generator chooses among the ops or among their lanes, and how many
 * run in a call.
 *
 * Invariant: an op in here has unmet == 0 and has not run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_READY_H
#define SOFTCUDA_READY_H

#include "softcuda/engine/op.h"

#include <stdbool.h>
#include <stdint.h>

void ready_seed(uint64_t seed);
void ready_add(struct op *op);
/* The op need not be in here. */
void ready_remove(struct op *op);
bool ready_is_any(void);
/* Whether one more op is to run now, by chance: the smaller `of`, the likelier.
 * False if no op may run. */
bool ready_is_one_more(uint32_t of);
/* The op to run, which stays in here; with `need`, one that is marked with it.
 * NULL: there is none. */
struct op *ready_choose(uint64_t need);
/* The op that was issued first.  Host functions are left out. */
struct op *ready_first(void);

#endif
