/*
 * trace_file.h - a session's trace in a file of the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_TRACE_FILE_H
#define SUPPORT_TRACE_FILE_H

#include <stdbool.h>

struct trace_file {
    char path[64], log_line[64], trace_line[128];
    const char *environment[3]; /* points into this struct: do not copy it */
};

/* An empty file, and the environment of a session that traces into it; `log`
 * is for GRAPHHOOKS_LOG.  False when no file can be made, which is a point
 * that failed. */
bool trace_file_open(struct trace_file *trace, const char *log);
/* How many lines have the text. */
int trace_file_count(const struct trace_file *trace, const char *text);
void trace_file_remove(const struct trace_file *trace);

#endif
