/*
 * engine.h - operations and when they run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ENGINE_H
#define SOFTCUDA_ENGINE_H

#include "softcuda/engine/op.h"

#include <stdbool.h>
#include <stdint.h>

/* Submits an op whose dependencies and position are complete.  The engine then
 * owns it. */
struct mark op_submit(struct op *op);

/* Tells that one of the things that the op waits for has happened. */
void engine_release(struct op *op);
/* Called at the end of a call: runs what has become ready. */
void engine_settle(void);

/* Runs what must run before the marks are done.  Waits for what other threads
 * have to issue first. */
void engine_run_until(const struct mark *marks, uint32_t n);
/* Goes one step towards the marks, for a program that polls.  True when all are
 * done. */
bool engine_poll(const struct mark *marks, uint32_t n);
void engine_run_all(void);
void engine_pump(void);
/* The number of the next op that is submitted. */
uint64_t engine_next_seq(void);

#endif
