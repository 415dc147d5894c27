/*
 * saving.h - one host that saves, opened, run and looked at as most tests of
 * offload do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SAVING_H
#define SUPPORT_SAVING_H

#include "support/saver.h"

extern struct saver sv;

/* The host and its session; false: the test has failed, and nothing is open. */
bool open_with(const struct saver_options *options);
/* Objects of the driver's beyond those that were there before the session.  Of
 * a host with memory of its own its blocks are not counted. */
uint64_t left_over(void);

/* One step for each count of microbatches; false: one has failed. */
bool run_steps(const uint32_t *counts, uint32_t n);
/* Steps of 4, 5, 3 and 4 microbatches: sums, races, and who has seen bytes that
 * nobody wrote. */
bool trains(void);
/* Every block that was lent is back, once.  The session is closed, or idle. */
bool all_are_back(void);

/* These modules, from 4 bytes. */
gh_offload_desc asks(const char *modules);

#endif
