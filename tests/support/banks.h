/*
 * banks.h - the one host of shapes that a test of banks has at a time.
 *
 * A test begins with banks_start() or banks_start_three(), and ends with
 * banks_finish(), which looks for wrong numbers, races and leaks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_BANKS_H
#define SUPPORT_BANKS_H

#include "support/toy.h"

extern struct toy s;

/* NULL-terminated environments without a log; the latter have
 * GRAPHHOOKS_MAX_BANKS. */
extern const char *const banks_quiet[];
extern const char *const banks_of_two[], *const banks_of_one[];

/* Without an environment in the options it is banks_quiet. */
bool banks_start(const struct toy_options *options);
/* The same, and banks of 512, 256 and 128 words. */
bool banks_start_three(const char *const *environment);
/* The last points of every test. */
void banks_finish(const char *what);
/* A step of one microbatch; a point only where it fails. */
void banks_step(uint32_t shape);

#endif
