/*
 * fake.c - see fake.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gh_error err;
char calls[8192], said[2048];
uint32_t n_fallible, fails_at;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(const char *between, const char *format, va_list args)
{
    char text[512];

    vsnprintf(text, sizeof(text), format, args);
    pthread_mutex_lock(&lock);
    if (strlen(calls) + strlen(text) + 2 < sizeof(calls)) {
        strcat(calls, calls[0] != '\0' ? between : "");
        strcat(calls, text);
    }
    pthread_mutex_unlock(&lock);
}

void note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add("", format, args);
    va_end(args);
}

void note_word(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add(" ", format, args);
    va_end(args);
}

bool was(const char *what)
{
    bool found;

    pthread_mutex_lock(&lock);
    found = strstr(calls, what) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

void hear_line(void *user, gh_log_level level, const char *line)
{
    size_t used;

    (void)user;
    (void)level;
    pthread_mutex_lock(&lock);
    used = strlen(said);
    snprintf(said + used, sizeof(said) - used, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

gh_status may_fail(gh_error *error)
{
    if (++n_fallible != fails_at) {
        return GH_OK;
    }
    if (error != NULL) {
        snprintf(error->text, sizeof(error->text), "call %u failed", fails_at);
    }
    return GH_ERR_DEVICE;
}

void forget_all(void)
{
    calls[0] = said[0] = err.text[0] = '\0';
    n_fallible = fails_at = 0;
}
