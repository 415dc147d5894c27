/*
 * tap.c - prints points as they are reported, and the plan at the end.
 *
 * Each line is flushed, so that a crash loses nothing of the log, and a
 * program that ends early has no plan, which the harness counts as an error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tap/tap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int reported, failed;
static bool without_places;

void tap_without_places(void)
{
    without_places = true;
}

static bool point(bool held, const char *file, int line, const char *name,
                  va_list args)
{
    printf("%sok %d - ", held ? "" : "not ", ++reported);
    vprintf(name, args);
    putchar('\n');
    if (!held) {
        failed++;
    }
    if (!held && !without_places) {
        printf("# at %s:%d\n", file, line);
    }
    fflush(stdout);
    return held;
}

bool tap_ok(bool held, const char *file, int line, const char *name, ...)
{
    va_list args;

    va_start(args, name);
    point(held, file, line, name, args);
    va_end(args);
    return held;
}

bool tap_is_int(long long actual, long long expected, const char *file,
                int line, const char *name, ...)
{
    const bool held = actual == expected;
    va_list args;

    va_start(args, name);
    point(held, file, line, name, args);
    va_end(args);
    if (!held) {
        diag("got %lld, expected %lld", actual, expected);
    }
    return held;
}

bool tap_is_str(const char *actual, const char *expected, const char *file,
                int line, const char *name, ...)
{
    const bool held = actual != NULL && expected != NULL
                          ? strcmp(actual, expected) == 0
                          : actual == expected;
    va_list args;

    va_start(args, name);
    point(held, file, line, name, args);
    va_end(args);
    if (!held) {
        diag("got \"%s\"", actual != NULL ? actual : "(NULL)");
        diag("expected \"%s\"", expected != NULL ? expected : "(NULL)");
    }
    return held;
}

bool tap_is_status(gh_status actual, gh_status expected, const gh_error *err,
                   const char *file, int line, const char *name, ...)
{
    const bool held = actual == expected;
    va_list args;

    va_start(args, name);
    point(held, file, line, name, args);
    va_end(args);
    if (!held) {
        diag("got status %" PRId32 ", expected %" PRId32, actual, expected);
        diag("text: %s", err != NULL && actual < 0 ? err->text : "(none)");
    }
    return held;
}

/* Every line of a remark begins with "# ", or it would be read as TAP. */
void diag(const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    printf("# ");
    for (const char *c = text; *c != '\0'; c++) {
        putchar(*c);
        if (*c == '\n' && c[1] != '\0') {
            printf("# ");
        }
    }
    putchar('\n');
    fflush(stdout);
}

void skip(int points, const char *reason, ...)
{
    for (int i = 0; i < points; i++) {
        va_list args;

        printf("ok %d # SKIP ", ++reported);
        va_start(args, reason);
        vprintf(reason, args);
        va_end(args);
        putchar('\n');
    }
    fflush(stdout);
}

int skip_all(const char *reason, ...)
{
    va_list args;

    printf("1..0 # SKIP ");
    va_start(args, reason);
    vprintf(reason, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    return 0;
}

void tap_begin(void)
{
    reported = failed = 0;
}

bool tap_tell(FILE *points)
{
    char line[4096];
    bool ended = false;

    while (fgets(line, sizeof(line), points) != NULL) {
        const bool held = strncmp(line, "ok ", 3) == 0;
        const char *rest = line + (held ? 3 : 7);

        if (strncmp(line, "1..", 3) == 0) {
            ended = true;
        } else if (held || strncmp(line, "not ok ", 7) == 0) {
            rest += strspn(rest, "0123456789");
            printf("%sok %d%s", held ? "" : "not ", ++reported, rest);
            failed += !held;
        } else {
            fputs(line, stdout);
        }
    }
    fflush(stdout);
    return ended;
}

void *tap_before_the_end(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0) {
        exit(99);
    }
    return memory + page - bytes;
}

void tap_give_back(void *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    munmap((char *)memory + bytes - page, 2 * page);
}

double tap_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int done_testing(void)
{
    printf("1..%d\n", reported);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fprintf(stderr, "the points could not be written: give standard "
                        "output a file on a disk with room\n");
        return 1;
    }
    return failed != 0 || reported == 0;
}
