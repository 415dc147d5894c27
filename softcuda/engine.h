/*
 * engine.h - operations and when they run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ENGINE_H
#define SOFTCUDA_ENGINE_H

#include "driver/driver.h"
#include "softcuda/op.h"

#include <stdbool.h>
#include <stdint.h>

/* The op's order is complete; from here on the engine owns it. */
struct mark op_submit(struct op *op);

void engine_run_until(const struct mark *mark);
void engine_run_ctx(CUcontext ctx);
void engine_run_all(void);
bool engine_poll(const struct mark *mark);
void engine_pump(void);
void engine_seed(uint64_t seed);

#endif
