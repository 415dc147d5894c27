/*
 * options.h - what a run is asked to do.
 *
 * A person says so in a command line (command.h); a test fills it in.
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
    MODE_PLAIN, /* as eager, but nothing is delayed */
    MODE_BARE,  /* each pass is a graph that the engine captures */
    MODE_OFFLOAD,       /* as graph, and activations go to the host */
    MODE_OFFLOAD_DELAY, /* the same, copies after the next launch */
    /* pairs of microbatches, with hidden exchanges of tokens: */
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
    MAX_CP = 16, /* numbers of ranks that may share a sequence; at most
                    MAX_LENGTHS shapes */
    MAX_SPLIT = 256, /* parts of a model: stages, times chunks */
    MAX_SLOTS = 64 /* of a session */
};

struct options {
    struct config config;
    int steps;
    int counts[MAX_COUNTS]; /* microbatches of each step, repeated */
    int n_counts;
    int lengths[MAX_LENGTHS]; /* of sequences; a step's microbatches take them
                                 in turn; config.seq is the longest */
    int n_lengths;            /* 0: config.seq alone */
    bool packed;              /* microbatches are packed of documents */
    int cp[MAX_CP]; /* how many ranks may share a sequence, rising */
    int n_cp;       /* 0: no sequence is shared, and cp_force and cp_ring do not
                       count */
    int cp_force;   /* so many share, in every microbatch; 0: as few as
                       possible */
    bool cp_ring;   /* keys and values come around a ring */
    int in_flight, streams;
    bool delay_wgrad; /* weights' gradients are passes of their own, */
    int delay;        /* so many microbatches later */
    bool legacy;      /* everything on the legacy default stream */
    int pp, vpp;      /* stages, and chunks of each; 0: as 1 */
    const char *schedule; /* 1f1b, interleaved, zero-bubble, dualpipev or a
                             file; NULL: 1f1b */
    int group;     /* microbatches that go through a chunk in a row; 0: as
                      many as there are stages */
    int time_passes; /* of the last so many steps with the most microbatches:
                        how long stages are idle */
    bool placed_v; /* a file's chunks lie in the shape of a V */
    int split[MAX_SPLIT]; /* layers of each part of the model */
    int n_split;          /* 0: as even as possible */
    double lr;
    int warmup;
    struct ranks *ranks; /* this one and the others; NULL: there are no
                            others */

    /* of graph mode */
    const char *library;             /* its path */
    const char *scope, *granularity; /* NULL: the library's default, or what
                                        its variables say */
    const char *trace;               /* NULL: none */
    const char *offload;          /* modules; NULL: all */
    unsigned offloaded;           /* the same as bits: bit n for saved_module
                                     n */
    const char *exchange; /* by the library: nccl, copy, auto; NULL: by the
                             engine */
    const char *stash;    /* as it was given; NULL: no stash */
    uint64_t stash_bytes; /* of pages on each rank; or 0, and */
    uint32_t stash_percent; /* of what the first step needs */
    uint64_t spill_bytes;   /* pinned, for pages that it lacks; 0: none */
    int suspend; /* the session is suspended and resumed, by this seed; 0: it
                    is not */
    bool no_family; /* the library knows layers only by their kinds */
};

/* Stages of the pipeline. */
static inline int options_pp(const struct options *options)
{
    return options->pp > 1 ? options->pp : 1;
}

static inline int options_vpp(const struct options *options)
{
    return options->vpp > 1 ? options->vpp : 1;
}

/* Whether the mode hides exchanges of tokens. */
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
static inline bool mode_delays(enum mode mode)
{
    return mode == MODE_OFFLOAD_DELAY || mode == MODE_OVERLAP_OFFLOAD;
}

/* Whether the gradients of weights are passes of their own. */
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

/* How many sets of activations are in use at once. */
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
