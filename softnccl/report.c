/*
 * report.c - reports of wrong use, each printed once and kept; last errors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXTS = 1000
};

static char *texts[MAX_TEXTS];
static uint64_t n_texts;
static _Thread_local char last[256];

void report_error(struct ncclComm *comm, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last, sizeof(last), format, args);
    va_end(args);
    if (comm != NULL) {
        memcpy(comm->error, last, sizeof(last));
    }
}

const char *report(const char *what, const char *format, ...)
{
    char text[768];
    const int head = snprintf(text, sizeof(text), "%s: ", what);
    va_list args;

    va_start(args, format);
    vsnprintf(text + head, sizeof(text) - (size_t)head, format, args);
    va_end(args);
    fprintf(stderr, "softnccl: %s\n", text);
    snprintf(last, sizeof(last), "%.*s", (int)sizeof(last) - 1, text);
    if (n_texts < MAX_TEXTS) {
        texts[n_texts] = strdup(text);
    }
    n_texts++;
    return last;
}

void report_nowhere(const char *text)
{
    snprintf(last, sizeof(last), "%s", text);
    fprintf(stderr, "%s\n", text);
}

const char *report_last(void)
{
    return last;
}

uint64_t reports_read(uint64_t i, const char **text_p)
{
    if (text_p != NULL) {
        *text_p = i < n_texts && i < MAX_TEXTS ? texts[i] : NULL;
    }
    return n_texts;
}

void reports_forget(void)
{
    for (uint64_t i = 0; i < n_texts && i < MAX_TEXTS; i++) {
        free(texts[i]);
    }
    n_texts = 0;
}
