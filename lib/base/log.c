/*
 * log.c - formats a line and hands it to the host's sink, or to stderr.
 *
 * A line is one line, whatever is in the names that a host has given.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/log.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>

void gh_log_stderr(void *user, gh_log_level level, const char *line)
{
    static const char *const names[] = { "", "warning: ", "", "debug: " };

    (void)user;
    fprintf(stderr, "graphhooks: %s%s\n",
            level <= GH_LOG_DEBUG ? names[level] : "", line);
}

static void write_line(const struct gh_log *log, gh_log_level level,
                       const char *format, va_list args)
{
    char line[512];

    vsnprintf(line, sizeof(line), format, args);
    gh_one_line(line);
    log->write(log->user, level, line);
}

void gh_log_line(const struct gh_log *log, gh_log_level level,
                 const char *format, ...)
{
    va_list args;

    if (level > log->level) {
        return;
    }
    va_start(args, format);
    write_line(log, level, format, args);
    va_end(args);
}

void gh_log_answer(const struct gh_log *log, const char *format, ...)
{
    va_list args;

    if (log->level < GH_LOG_WARN) {
        return;
    }
    va_start(args, format);
    write_line(log, GH_LOG_INFO, format, args);
    va_end(args);
}
