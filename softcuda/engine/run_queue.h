/*
 * run_queue.h - the ops that may run, and which of them is next.
 *
 * With seed 0 the op that was issued first is next.  With any other seed a
 * random generator chooses among the ops or among their lanes, and how many
 * run in a call.
 *
 * Invariant: an op in here has unmet == 0 and has not run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RUN_QUEUE_H
#define SOFTCUDA_RUN_QUEUE_H

#include "softcuda/engine/op.h"

#include <stdbool.h>
#include <stdint.h>

void run_queue_seed(uint64_t seed);
void run_queue_add(struct op *op);
/* The op need not be in here. */
void run_queue_remove(struct op *op);
bool run_queue_is_any(void);
/* Whether one more op is to run now, by chance: the smaller `of`, the likelier.
 * False if no op may run. */
bool run_queue_is_one_more(uint32_t of);
/* The op to run, which stays in here; with `need`, one that is marked with it.
 * NULL: there is none. */
struct op *run_queue_choose(uint64_t need);
/* The op that was issued first.  Host functions are left out. */
struct op *run_queue_first(void);

#endif
