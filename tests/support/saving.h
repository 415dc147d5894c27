/*
 * saving.h - one host that saves, opened, run and looked at as most tests of
 * offload do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SAVING_H
#define SUPPORT_SAVING_H

#include "support/toy.h"

extern struct toy sv;
extern const char *const silent[]; /* an environment without a log */

/* The host and its session; false: the test has failed, and nothing is open. */
bool open_with(const struct toy_options *options);
/* Objects of the driver's beyond those that were there before the session.  Of
 * a host with memory of its own its blocks are not counted. */
uint64_t left_over(void);

/* One step for each count of microbatches; false: one has failed. */
bool run_steps(const uint32_t *counts, uint32_t n);
/* `n` steps of as many microbatches. */
bool steps(uint32_t n, uint32_t microbatches);
/* The sums are right, and nothing has raced. */
bool is_right(void);
/* Steps of 4, 5, 3 and 4 microbatches: sums, races, and who has seen bytes that
 * nobody wrote. */
bool trains(void);
/* Every block that was lent is back, once.  The session is closed, or idle. */
bool all_are_back(void);

/* For toy.watch and toy.user: answers so after call `at`. */
struct cut {
    uint64_t at;
    enum toy_answer answer;
};
enum toy_answer cut(struct toy *host, enum toy_call call, uint32_t layer,
                    uint32_t module, uint32_t microbatch);

/* A point: step `which` of five is cut after each of its calls in turn, with
 * this answer; the others are right all the same, and the host has its memory
 * back. */
void sweep_cuts(const struct toy_options *options, uint32_t which,
                enum toy_answer answer, const char *what);

/* These modules, from 4 bytes. */
gh_offload_desc asks(const char *modules);

#endif
