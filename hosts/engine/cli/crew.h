/*
 * crew.h - the ranks of a run: this thread, other threads, other processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CREW_H
#define ENGINE_CREW_H

#include "cli/launch.h"
#include "cli/modes.h"

/* Opens NCCL and the ranks that are threads, or joins those that are processes,
 * and runs all modes: modes is the caller's rank, whose device is open.  0, or
 * -1 when a rank has failed: each has said so on standard error. */
int crew_run(struct launch *launch, struct modes *modes);

#endif
