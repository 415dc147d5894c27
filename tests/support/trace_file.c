/*
 * trace_file.c - a session's trace in a file of the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/trace_file.h"

#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool trace_file_open(struct trace_file *trace, const char *log)
{
    int fd;

    strcpy(trace->path, "/tmp/graphhooks-XXXXXX");
    fd = mkstemp(trace->path);
    if (fd < 0) {
        return ok(false, "a file for the trace is made");
    }
    close(fd);
    snprintf(trace->log_line, sizeof(trace->log_line), "GRAPHHOOKS_LOG=%s",
             log);
    snprintf(trace->trace_line, sizeof(trace->trace_line),
             "GRAPHHOOKS_TRACE=%s", trace->path);
    trace->environment[0] = trace->log_line;
    trace->environment[1] = trace->trace_line;
    trace->environment[2] = NULL;
    return true;
}

int trace_file_count(const struct trace_file *trace, const char *text)
{
    FILE *file = fopen(trace->path, "r");
    char line[1024];
    int n = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        n += strstr(line, text) != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

void trace_file_remove(const struct trace_file *trace)
{
    unlink(trace->path);
}
