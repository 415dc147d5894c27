/*
 * options.h - what a run is asked to do.
 *
 * A person says so in a command line (command.h), a test by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "step/ranks.h"

#include "model/model.h"

enum mode {
    MODE_EAGER,
    MODE_GRAPH,
    MODE_STEP,
    MODE_PLAIN, /* eager, and nothing is delayed */
    MODE_OFFLOAD,       /* graph, and activations go to the host */
    MODE_OFFLOAD_DELAY, /* the same, their copies after the next launch */
    /* by pairs of microbatches, whose exchanges of tokens are hidden: */
    MODE_OVERLAP,             /* kernel by kernel */
    MODE_OVERLAP_GRAPH,       /* recorded and replayed */
    MODE_OVERLAP_DELAY_WGRAD, /* and weights' gradients in the gaps */
    MODE_OVERLAP_OFFLOAD,     /* and activations go to the host, in the gaps */
    MODE_COUNT
};

enum {
    MAX_COUNTS = 64,
    MAX_STREAMS = 16,
    MAX_LENGTHS = 64,
    MAX_CP = 16, /* sizes of context parallelism, of MAX_LENGTHS shapes */
    MAX_SLOTS = 64 /* of a session */
};

struct options {
    struct config config;
    int steps;
    int counts[MAX_COUNTS]; /* microbatches of each step, cycled */
    int n_counts;
    int lengths[MAX_LENGTHS]; /* of sequences, that a step's microbatches take
                                 in turn; config.seq is the longest */
    int n_lengths;            /* 0: config.seq alone */
    bool packed;              /* microbatches are packed of documents */
    int cp[MAX_CP]; /* how many ranks may share a sequence, rising */
    int n_cp;       /* 0: none do, and the others are not looked at */
    int cp_force;   /* so many do, in every microbatch; 0: as few as can */
    bool cp_ring;   /* keys and values come around a ring */
    int in_flight, streams;
    bool delay_wgrad; /* weights' gradients are passes of their own, */
    int delay;        /* so many microbatches later */
    bool legacy;      /* everything on the legacy default stream */
    double lr;
    int warmup;
    struct ranks *ranks; /* this one and the others; NULL: it is alone */

    /* of graph mode */
    const char *library;             /* its path */
    const char *scope, *granularity; /* NULL: the library's default */
    const char *trace;               /* NULL: none */
    bool check;
    const char *offload;          /* modules; NULL: all that there are */
    const char *offload_fraction; /* NULL: the library's default */
    int offload_prefetch, offload_in_flight; /* 0: the library's default */
    unsigned offloaded;           /* the same: bit n for saved_module n */
    int offload_min;              /* bytes of a tensor that goes, at least */
    int offload_delay; /* of MODE_OFFLOAD, 0 or 1; -1: nobody has said */
    const char *exchange; /* of the library: nccl, copy, auto; NULL: the
                             engine's own */
    const char *overlap; /* off, fixed, auto; NULL: the library's default */
    bool no_family; /* the library knows layers by their kinds alone */
};

/* Whether the mode has passes in the library's hands. */
static inline bool mode_overlaps(enum mode mode)
{
    return mode >= MODE_OVERLAP && mode <= MODE_OVERLAP_OFFLOAD;
}

static inline bool mode_is_graph(enum mode mode)
{
    return mode == MODE_GRAPH || mode == MODE_OFFLOAD ||
           mode == MODE_OFFLOAD_DELAY || mode_overlaps(mode);
}

static inline bool mode_offloads(enum mode mode)
{
    return mode == MODE_OFFLOAD || mode == MODE_OFFLOAD_DELAY ||
           mode == MODE_OVERLAP_OFFLOAD;
}

/* Whether commits wait for a flush. */
static inline bool mode_delays(const struct options *options, enum mode mode)
{
    return mode == MODE_OFFLOAD_DELAY || mode == MODE_OVERLAP_OFFLOAD ||
           (mode == MODE_OFFLOAD && options->offload_delay == 1);
}

/* Whether weights' gradients are passes of their own. */
static inline bool mode_delays_wgrad(const struct options *options,
                                     enum mode mode)
{
    return mode == MODE_OVERLAP_DELAY_WGRAD ||
           (options->delay_wgrad && mode != MODE_PLAIN);
}

static inline int options_count(const struct options *options, int step)
{
    return options->counts[step % options->n_counts];
}

/* How many shapes microbatches have: lengths, or numbers of ranks that share a
 * sequence. */
static inline int options_shapes(const struct options *options)
{
    return options->n_cp > 0        ? options->n_cp
           : options->n_lengths > 0 ? options->n_lengths
                                    : 1;
}

static inline int options_length(const struct options *options, int shape)
{
    return options->n_lengths > 0 ? options->lengths[shape]
                                  : options->config.seq;
}

static inline int options_cp(const struct options *options, int shape)
{
    return options->n_cp > 0 ? options->cp[shape] : 1;
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
