/*
 * train.h - one training run in one mode.
 *
 * train() makes everything anew from the seed, trains, and frees everything,
 * so that modes cannot see each other.  A step is issued by schedule_step()
 * in the same order in every mode; modes differ in how a microbatch's parts
 * reach the device:
 *
 *     eager   the kernels, launched one by one
 *     graph   through the library's hooks (passes.h)
 *     graph+offload, graph+offload+delay
 *             the same, and what parts keep is offloaded (offload.h)
 *     overlap, overlap+...
 *             by pairs of microbatches (overlap.h)
 *     step    schedule_step() captured once per microbatch count and launched
 *             as one graph (step_graph.h): the floor that graphs can reach
 *     plain   as eager; where the others delay weights' gradients, the joint
 *             backward that they are compared with
 *     bare    each pass captured by the engine itself (bare.h): the floor that
 *             graphs of passes can reach
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_TRAIN_H
#define ENGINE_TRAIN_H

#include "step/options.h"
#include "step/text.h"

#include "lib/pipeline/pipeline.h"

#include <graphhooks/exchange.h>
#include <graphhooks/memory.h>
#include <graphhooks/offload.h>
#include <graphhooks/overlap.h>
#include <graphhooks/session.h>
#include <graphhooks/stash.h>

#define MAX_REASONS 32 /* more than there are gh_reasons */

/* The results of a run.  Losses and tokens are those of all ranks. */
struct result {
    enum mode mode;
    int steps;
    double *loss, *step_ms, *host_ms; /* one for each step */
    uint64_t *recordings;             /* after each step; graph mode */
    uint64_t weights_hash;
    uint64_t shaped[MAX_LENGTHS]; /* microbatches of each shape */
    uint64_t *tokens; /* one for each step: of all ranks, without padding */
    int n_timed;            /* steps whose passes were timed, and of each: */
    double *idle;           /* the share in which stages were idle, */
    double *idle_predicted; /* and on a clock with passes as long as these */
    double pass_ms[GH_ACTIONS]; /* of each kind, the mean of all */
    double stage_idle[RANKS_MOST]; /* the share of each stage */
    int ranks;
    bool ranks_differ; /* their weights are not the same bits */
    bool told;         /* to stop, by this rank's progress function */
    bool stopped;      /* by any rank: all have ended with this step */
    uint64_t peak_bytes; /* of device memory, at the end of a step */
    uint64_t *used_bytes; /* the same, after each step */
    int settled;          /* the last step, from 1, in which a rank recorded;
                             0: none */
    uint64_t grown_bytes; /* the most that a rank had more after a later step
                             than after its last that recorded */
    bool has_stats;
    const char *(*reason_name)(gh_reason); /* the library's; it stays loaded */
    gh_stats stats;
    gh_offload_stats offload;    /* struct_size 0: nothing is offloaded */
    gh_overlap_stats overlap;    /* struct_size 0: nothing overlaps */
    uint64_t exchanges_captured; /* exchanges in graphs */
    uint64_t exchanges, exchanged_bytes; /* of tokens: issued, and what this
                                            rank has sent by them to others;
                                            those in graphs are not counted */
    gh_exchange_stats exchange; /* struct_size 0: they are the engine's own */
    gh_stash_stats stash;       /* struct_size 0: there is none */
    gh_memory_stats memory;     /* struct_size 0: it is not suspended */
    int n_chunks; /* of the stage; 0: no graphs */
    uint64_t slots[MAX_CHUNKS];      /* that the schedule needs */
    uint64_t slots_used[MAX_CHUNKS]; /* that have sets */
    uint64_t slot_bytes[MAX_CHUNKS]; /* of these sets */
    uint64_t landing_slot_bytes[MAX_CHUNKS]; /* of places for what a slot's
                                                graphs work on */
    uint64_t landing_bytes;                  /* of all slots */
    int n_layers;                    /* of the stage */
    uint64_t *layer_bytes;           /* that a slot has for each of them, */
    uint64_t embedding_bytes, head_bytes, rest_bytes; /* and for these */
    uint64_t eager[MAX_REASONS]; /* eager passes, by their reason */
    uint64_t wgrad_replays; /* replays in stats that were for delayed
                               gradients */
};

/* Called after every step to report progress.  False ends the run there; if
 * only one rank says so, all ranks end after the next step. */
typedef bool train_progress_fn(const struct options *options, enum mode mode,
                               int step, double loss, double step_ms);

/* Opens what graph mode needs, and closes it again.  Returns 0, or -1 with a
 * sentence; *bad_option says whether an option is wrong. */
int train_check(const struct options *options, struct device *dev,
                enum mode mode, bool *bad_option, char *error, size_t error_bytes);

/* Returns 0; or -1 with one sentence in error.  Everything is freed except
 * *result, which result_free() frees in both cases. */
int train(const struct options *options, struct device *dev,
          const struct text *text, enum mode mode, train_progress_fn *progress,
          struct result *result, char *error, size_t error_bytes);
void result_free(struct result *result);

#endif
