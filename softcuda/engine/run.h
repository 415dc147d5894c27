/*
 * run.h - runs one piece of work: what it touches, does and costs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RUN_H
#define SOFTCUDA_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct op;

/* Runs the op.  False: it touches memory that does not exist, and has done
 * nothing. */
bool run_op(struct op *op, uint64_t *cost_ns);

#endif
