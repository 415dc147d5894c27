/*
 * options.h - what the command line asks for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "model.h"

enum mode {
    MODE_EAGER,
    MODE_GRAPH,
    MODE_STEP,
    MODE_PLAIN, /* eager, and nothing is delayed */
    MODE_COUNT
};

enum {
    MAX_COUNTS = 64,
    MAX_MODES = 8, /* that a person may list */
    MAX_STREAMS = 16,
    MAX_SLOTS = 64 /* of a session */
};

struct options {
    struct config config;
    int steps;
    int counts[MAX_COUNTS]; /* microbatches of each step, cycled */
    int n_counts;
    int in_flight, streams;
    bool delay_wgrad; /* weights' gradients are passes of their own, */
    int delay;        /* so many microbatches later */
    bool legacy;      /* everything on the legacy default stream */
    enum mode modes[MAX_MODES + 1]; /* and what is put first */
    int n_modes;
    const char *scope, *granularity; /* NULL: the library's default */
    const char *driver;              /* "soft", "cuda"; NULL: what is there */
    const char *library, *data, *json, *trace; /* NULL: find it; none */
    double lr;
    int warmup;
    bool check, quiet, help;
    bool gave_experts, gave_top_k, gave_state, gave_pattern; /* by a person */
    bool no_family; /* the library knows layers by their kinds alone */
};

/* 0; or -1 with one sentence in text: what is wrong and what would be right.
 * Strings point into argv. */
int options_parse(struct options *options, int argc, char **argv, char *text,
                  size_t text_bytes);

/* Whether options that are fine alone are so together: 0, or -1 with one
 * sentence. */
int options_check(const struct options *options, char *text, size_t text_bytes);

void options_help(void);

const char *mode_name(enum mode mode);
const char *model_name(enum model_kind model);

static inline int options_count(const struct options *options, int step)
{
    return options->counts[step % options->n_counts];
}

static inline bool options_has_mode(const struct options *options,
                                    enum mode mode)
{
    for (int i = 0; i < options->n_modes; i++) {
        if (options->modes[i] == mode) {
            return true;
        }
    }
    return false;
}

/* Sets of activations that are in use at once. */
static inline int options_sets(const struct options *options)
{
    return options->in_flight + (options->delay_wgrad ? options->delay : 0);
}

static inline int options_max_count(const struct options *options)
{
    int most = 0;

    for (int i = 0; i < options->n_counts; i++) {
        most = options->counts[i] > most ? options->counts[i] : most;
    }
    return most;
}

#endif
