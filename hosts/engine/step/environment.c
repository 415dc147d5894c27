/*
 * environment.c - see environment.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

enum {
    ADDED = 4 /* the most variables that options set */
};

static bool starts_with(const char *text, const char *prefix)
{
    return prefix[0] != '\0' && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Copies the variables that are not left out, and returns how many there
 * are. */
static size_t keep_others(const char **strings, enum mode mode, bool traced,
                          bool limited)
{
    const char *const left_out[] = {
        "GRAPHHOOKS_DRIVER=", "GRAPHHOOKS_LIBRARY=", "GRAPHHOOKS_SOFTCUDA=",
        mode_offloads(mode) ? "GRAPHHOOKS_OFFLOAD_DELAY="
                            : "GRAPHHOOKS_OFFLOAD=",
        traced ? "" : "GRAPHHOOKS_TRACE=",
        limited ? "GRAPHHOOKS_MEMORY_LIMIT=" : ""
    };
    size_t kept = 0;

    for (size_t i = 0; environ[i] != NULL; i++) {
        bool keep = true;

        for (size_t j = 0; j < sizeof(left_out) / sizeof(left_out[0]); j++) {
            keep = keep && !starts_with(environ[i], left_out[j]);
        }
        if (keep) {
            strings[kept++] = environ[i];
        }
    }
    return kept;
}

/* The file of a rank: that of the first, with .rankN before what its name ends
 * with.  A path with %, and one that is no file, is for all. */
static void put_trace(char *out, size_t bytes, const char *path, int rank)
{
    const char *name = strrchr(path, '/');
    const char *end = strrchr(name != NULL ? name : path, '.');
    struct stat st;

    if (rank == 0 || strchr(path, '%') != NULL ||
        (stat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
        snprintf(out, bytes, "GRAPHHOOKS_TRACE=%s", path);
        return;
    }
    if (end == NULL) {
        end = path + strlen(path);
    }
    snprintf(out, bytes, "GRAPHHOOKS_TRACE=%.*s.rank%d%s", (int)(end - path),
             path, rank, end);
}

int environment_make(struct environment *environment,
                     const struct options *options, enum mode mode, bool dry,
                     uint64_t limit)
{
    const int rank = options->ranks == NULL ? 0 : options->ranks->rank;
    const bool traced = !dry && (rank == 0 || options_pp(options) > 1);
    const bool trace = options->trace != NULL && traced;
    const size_t bytes = (trace ? strlen(options->trace) : 0) + 64;
    size_t n = 0;

    while (environ[n] != NULL) {
        n++;
    }
    environment->strings =
        calloc(n + ADDED + 1, sizeof(*environment->strings));
    environment->trace = malloc(bytes);
    if (environment->strings == NULL || environment->trace == NULL) {
        return -1;
    }

    n = keep_others(environment->strings, mode, traced, limit != 0);
    if (limit != 0) {
        snprintf(environment->limit, sizeof(environment->limit),
                 "GRAPHHOOKS_MEMORY_LIMIT=%" PRIu64, limit);
        environment->strings[n++] = environment->limit;
    }
    if (trace && getenv("GRAPHHOOKS_TRACE") == NULL) {
        put_trace(environment->trace, bytes, options->trace, rank);
        environment->strings[n++] = environment->trace;
    }
    if (options->ranks != NULL && getenv("GRAPHHOOKS_TIMEOUT") == NULL) {
        snprintf(environment->timeout, sizeof(environment->timeout),
                 "GRAPHHOOKS_TIMEOUT=%d", options->ranks->watch.limit_s);
        environment->strings[n++] = environment->timeout;
    }
    if (mode_delays(mode)) {
        environment->strings[n++] = "GRAPHHOOKS_OFFLOAD_DELAY=1";
    }
    environment->strings[n] = NULL;
    return 0;
}

void environment_free(struct environment *environment)
{
    free(environment->strings);
    free(environment->trace);
    *environment = (struct environment){ 0 };
}

void environment_say_who_wins(const struct options *options)
{
    const struct {
        const char *variable, *option;
        bool given;
    } rows[] = {
        { "GRAPHHOOKS_TRACE", "--trace", options->trace != NULL },
        { "GRAPHHOOKS_OFFLOAD", "--offload", options->offload != NULL },
        { "GRAPHHOOKS_EP_EXCHANGE", "--exchange", options->exchange != NULL },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *value = getenv(rows[i].variable);

        if (rows[i].given && value != NULL) {
            fprintf(stderr, "gh-engine: %s=%s wins over %s\n",
                    rows[i].variable, value, rows[i].option);
        }
    }
}
