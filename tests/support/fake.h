/*
 * fake.h - what suites share that fake what is below their room: the calls and
 * lines that they were told of, and a device.
 *
 * A suite that links fake_device.c enters and leaves that device for nothing,
 * and ends with done_with_device().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_FAKE_H
#define SUPPORT_FAKE_H

#include "base/log.h"
#include "support/fake_device.h"

#include <stdbool.h>

extern gh_error err; /* of the last call that failed */

/* The calls since, in their order; those that find no room are left out. */
extern char calls[8192];
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, with a blank in front of it where it is not the first. */
void note_word(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether they have these words. */
bool was(const char *what);

/* The lines of the log since. */
extern char said[2048];
void hear_line(void *user, gh_log_level level, const char *line);

/* Call number fails_at, of those that ask, fails. */
extern uint32_t n_fallible, fails_at; /* from 1; 0: none */
gh_status may_fail(gh_error *error);

/* Begins anew: nothing was called or said, and nothing fails. */
void forget_all(void);

#endif
