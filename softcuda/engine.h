/*
 * engine.h - operations and when they run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ENGINE_H
#define SOFTCUDA_ENGINE_H

#include "softcuda/op.h"

#include <stdbool.h>
#include <stdint.h>

/* The op's order is complete; from here on the engine owns it. */
struct mark op_submit(struct op *op);

/* One thing less that the op waits for. */
void engine_release(struct op *op);
/* At the end of a call: what was released runs in its turn. */
void engine_settle(void);

/* Runs what must run before the marks are done, and waits for what other
 * threads have to issue before. */
void engine_run_until(const struct mark *marks, uint32_t n);
/* One step towards the marks, for a program that polls; true when all are
 * done. */
bool engine_poll(const struct mark *marks, uint32_t n);
void engine_run_all(void);
void engine_pump(void);
/* Of the next op that is submitted. */
uint64_t engine_next_seq(void);

#endif
