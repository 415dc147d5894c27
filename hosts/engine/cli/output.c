/*
 * output.c - see output.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int refuse(const char *option, const char *path, const char *rule,
                  char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "%s %s: %s; give a file that can be written",
             option, path, rule);
    return -1;
}

/* Checks that a file can be written.  A file that it has to create is removed
 * again, because the run may end without writing it.  A pipe is not opened
 * here, because it can be opened only once. */
static int check_path(const char *option, const char *path, char *error,
                      size_t error_bytes)
{
    struct stat st;
    const bool is_new = lstat(path, &st) != 0;
    FILE *file;

    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) {
        return 0;
    }
    file = fopen(path, "a");
    if (file == NULL) {
        return refuse(option, path, strerror(errno), error, error_bytes);
    }
    fclose(file);
    if (is_new) {
        remove(path);
    }
    return 0;
}

/* Whether both paths are one file, so that one would overwrite the other. */
static bool is_one_file(const char *a, const char *b)
{
    struct stat of_a, of_b;

    if (stat(a, &of_a) != 0 || stat(b, &of_b) != 0) {
        return strcmp(a, b) == 0;
    }
    return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* The file of --trace, if there will be one with this name.  GRAPHHOOKS_TRACE
 * wins over it, and only the library knows what % stands for. */
static const char *trace_path(const struct command *command)
{
    const char *path = command->options.trace;

    if (path == NULL || strchr(path, '%') != NULL ||
        getenv("GRAPHHOOKS_TRACE") != NULL ||
        !command_has_graph(command)) {
        return NULL;
    }
    return path;
}

static int check_trace_path(const char *path, char *error, size_t error_bytes)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode) &&
        !S_ISDIR(st.st_mode)) {
        return refuse("--trace", path, "it is no file", error, error_bytes);
    }
    return check_path("--trace", path, error, error_bytes);
}

int output_check(const struct command *command, char *error, size_t error_bytes)
{
    const char *trace = trace_path(command);

    if (command->json != NULL &&
        check_path("--json", command->json, error, error_bytes) != 0) {
        return -1;
    }
    if (trace == NULL) {
        return 0;
    }
    if (command->json != NULL && is_one_file(command->json, trace)) {
        snprintf(error, error_bytes,
                 "--json and --trace are one file, %s; give each its own",
                 trace);
        return -1;
    }
    return check_trace_path(trace, error, error_bytes);
}

/* Whether the trace is whole: a file must end as a list of events does, and a
 * device must take a byte. */
static bool is_whole(const char *path)
{
    struct stat st;
    FILE *file;
    char end[3] = "";
    bool whole;

    if (stat(path, &st) != 0) {
        return false;
    }
    file = fopen(path, S_ISREG(st.st_mode) ? "rb" : "ab");
    if (file == NULL) {
        return false;
    }
    if (S_ISREG(st.st_mode)) {
        whole = fseek(file, -2, SEEK_END) == 0 && fread(end, 1, 2, file) == 2 &&
                strcmp(end, "]\n") == 0;
    } else {
        whole = fputc('\n', file) != EOF;
    }
    return fclose(file) == 0 && whole;
}

int output_check_trace(const struct command *command, char *error,
                       size_t error_bytes)
{
    const char *path = trace_path(command);

    if (path == NULL || is_whole(path)) {
        return 0;
    }
    return refuse("--trace", path, "it could not be written whole", error,
                  error_bytes);
}
