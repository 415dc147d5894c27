/*
 * run.h - running one piece of work: what it touches, does and costs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RUN_H
#define SOFTCUDA_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct op;

/* False when it touches memory that is not there; it has done nothing, then. */
bool run_op(struct op *op, uint64_t *cost_ns);

#endif
