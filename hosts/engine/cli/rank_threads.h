/*
 * rank_threads.h - the ranks of a run: this thread, other threads, other
 * processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CREW_H
#define ENGINE_CREW_H

#include "cli/launch.h"
#include "cli/modes.h"

/* Opens NCCL, starts or joins the other ranks, and runs all modes.  `modes` is
 * of the caller's rank, whose device is open.  Returns 0, or -1 if a rank has
 * failed; each such rank has said so on standard error. */
int run_ranks(struct launch *launch, struct modes *modes);

#endif
