/*
 * seeds.c - runs a fuzz driver on inputs that seeds make, without a fuzzer.
 *
 *     tests/fuzz/session.t                               the seeds of make check
 *     GRAPHHOOKS_FUZZ_SEED=7 tests/fuzz/session.t        one input
 *     GRAPHHOOKS_FUZZ_SECONDS=600 GRAPHHOOKS_FUZZ_SEED=1000000 ...
 *                                                        others, so long
 *
 * A driver that finds a fault ends the program, and the seed is said.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/fuzz/fuzz.h"

#include "tap/tap.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_BYTES = 4096,
    MOST_FILES = 64,
    LIMIT_S = 60 /* for one input */
};

static unsigned long seed;
static char *files[MOST_FILES];
static size_t n_files;

/* ---- a fault ------------------------------------------------------------- */

void fuzz_found(const char *format, ...)
{
    va_list args;

    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("; GRAPHHOOKS_FUZZ_SEED=%lu\n", seed);
    fflush(stdout);
    abort();
}

/* It may be inside of anything: nothing but write() is safe here. */
static void on_signal(int number)
{
    char text[80];
    const int n = snprintf(text, sizeof(text),
                           "# signal %d, GRAPHHOOKS_FUZZ_SEED=%lu\n", number,
                           seed);

    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0) {
        _exit(98);
    }
    _exit(99);
}

/* ---- inputs -------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static void find_files(void)
{
    const char *top = getenv("srcdir");
    char path[1024];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s", top != NULL ? top : ".",
             fuzz_corpus);
    dir = opendir(path);
    while (dir != NULL && n_files < MOST_FILES &&
           (entry = readdir(dir)) != NULL) {
        char name[1400];

        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            files[n_files++] = strdup(name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Bytes of a file, some of which are then others, or gone, or there twice. */
static size_t take_file(uint64_t *state, uint8_t *data)
{
    FILE *file = fopen(files[next(state) % n_files], "r");
    const uint64_t changes = next(state) % 12;
    size_t n = file != NULL ? fread(data, 1, MOST_BYTES / 2, file) : 0;

    if (file != NULL) {
        fclose(file);
    }
    for (uint64_t i = 0; i < changes && n > 0; i++) {
        const size_t at = next(state) % n;
        const size_t bytes = next(state) % 9;

        switch (next(state) % 4) {
        case 0:
            data[at] = (uint8_t)next(state);
            break;
        case 1: /* what JSON, and options, are made of */
            data[at] = (uint8_t)"{}[]\",:0189-.eE \nnt"[next(state) % 19];
            break;
        case 2:
            if (at + bytes < n) {
                memmove(data + at, data + at + bytes, n - at - bytes);
                n -= bytes;
            }
            break;
        default:
            if (at + bytes < n && n + bytes <= MOST_BYTES) {
                memmove(data + at + bytes, data + at, n - at);
                n += bytes;
            }
        }
    }
    return n;
}

static size_t make(uint8_t *data)
{
    uint64_t state = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    size_t n = 64 + next(&state) % 448;

    if (n_files > 0) {
        return take_file(&state, data);
    }
    for (size_t i = 0; i < n; i++) {
        data[i] = (uint8_t)next(&state);
    }
    return n;
}

static void run_one(void)
{
    uint8_t whole[MOST_BYTES];
    const size_t n = make(whole);
    uint8_t *data = malloc(n + 1); /* so that a byte too far is seen */

    memcpy(data, whole, n);
    alarm(LIMIT_S);
    LLVMFuzzerTestOneInput(data, n);
    alarm(0);
    free(data);
}

int main(void)
{
    const char *first = getenv("GRAPHHOOKS_FUZZ_SEED");
    const char *seconds = getenv("GRAPHHOOKS_FUZZ_SECONDS");
    const time_t until = time(NULL) + (seconds != NULL ? atol(seconds) : 0);
    unsigned long n = fuzz_inputs, done = 0;
    char text[400];

    if (fuzz_skip() != NULL) {
        return skip_all("%s", fuzz_skip());
    }
    if (first != NULL) {
        seed = strtoul(first, NULL, 10);
        n = 1;
    }
    if (fuzz_corpus != NULL) {
        find_files();
        ok(n_files > 0, "there are files to begin with in %s", fuzz_corpus);
    }
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    signal(SIGPIPE, SIG_IGN);
    for (; done < n || time(NULL) < until; seed++, done++) {
        run_one();
    }
    ok(true, "%lu inputs, up to seed %lu, are refused or obeyed", done,
       seed - 1);
    if (done >= fuzz_inputs) {
        ok(fuzz_reached(text, sizeof(text)), "they come to %s", text);
    }
    for (size_t i = 0; i < n_files; i++) {
        free(files[i]);
    }
    return done_testing();
}
