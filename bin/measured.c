/*
 * measured.c - prints what was measured; measured_read.c reads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "measured.h"

#include <stdio.h>
#include <string.h>

void measured_print(const struct measured *measured)
{
    int width = (int)strlen("scope");

    if (measured->n == 0) {
        return;
    }
    for (uint32_t i = 0; i < measured->n; i++) {
        const int length = (int)strlen(measured->scopes[i].name);

        width = length > width ? length : width;
    }
    printf("measured: a pass of a segment, forward and backward, in ms\n");
    printf("  %-*s  segments      eager     replay  eager, host  "
           "replay, host  graphs\n",
           width, "scope");
    for (uint32_t i = 0; i < measured->n; i++) {
        const struct measured_scope *s = &measured->scopes[i];

        printf("  %-*s  %8u  %9.3f  %9.3f  %11.3f  %12.3f  %s\n", width,
               s->name, s->segments, s->eager_us / 1e3, s->replay_us / 1e3,
               s->eager_host_us / 1e3, s->replay_host_us / 1e3,
               s->kept ? "kept" : "dropped");
    }
}

static void print_quoted(const char *text)
{
    putchar('"');
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            putchar('\\');
        }
        putchar(*c);
    }
    putchar('"');
}

void measured_print_json(const struct measured *measured)
{
    if (measured->n == 0) {
        return;
    }
    printf("\"measured\":[");
    for (uint32_t i = 0; i < measured->n; i++) {
        const struct measured_scope *s = &measured->scopes[i];

        printf("%s\n{\"scope\":", i == 0 ? "" : ",");
        print_quoted(s->name);
        printf(",\"segments\":%u,\"eager_us\":%.3f,\"replay_us\":%.3f,"
               "\"eager_host_us\":%.3f,\"replay_host_us\":%.3f,\"kept\":%s}",
               s->segments, s->eager_us, s->replay_us, s->eager_host_us,
               s->replay_host_us, s->kept ? "true" : "false");
    }
    printf("\n],\n");
}
