/*
 * schedule.h - the order of one step, the same in every mode.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

#include "step/trainer.h"

/* Issues one step of `count` microbatches.  Returns 0, or -1 with a text in
 * trainer->dev->error or in the host's. */
int schedule_step(struct trainer *trainer, int count);

/* Waits for what was issued, but not for ranks that have failed or do not come.
 * Returns 0, or -1: dev->error. */
int schedule_wait(struct trainer *trainer);

#endif
