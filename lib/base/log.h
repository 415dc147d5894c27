/*
 * log.h - lines for a person: one for each decision that costs performance.
 *
 * Never called on the step path of a ready pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_LOG_H
#define GH_BASE_LOG_H

#include <graphhooks/host.h>

struct gh_log {
    gh_log_level level; /* 0: silent */
    void (*write)(void *user, gh_log_level level, const char *line);
    void *user;
};

/* The default sink: stderr, one line for each call. */
void gh_log_stderr(void *user, gh_log_level level, const char *line);

void gh_log_line(const struct gh_log *log, gh_log_level level,
                 const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Logs the answer to an option that asks for information.  It is information,
 * but it is shown wherever warnings are. */
void gh_log_answer(const struct gh_log *log, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
