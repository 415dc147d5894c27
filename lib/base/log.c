/*
 * log.c - formats a line and hands it to the host's sink, or to stderr.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void gh_log_stderr(void *user, gh_log_level level, const char *line)
{
    static const char *const names[] = { "", "warning: ", "", "debug: " };

    (void)user;
    fprintf(stderr, "graphhooks: %s%s\n",
            level <= GH_LOG_DEBUG ? names[level] : "", line);
}

void gh_log_line(const struct gh_log *log, gh_log_level level,
                 const char *format, ...)
{
    char line[512];
    va_list args;

    if (level > log->level) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    log->write(log->user, level, line);
}
