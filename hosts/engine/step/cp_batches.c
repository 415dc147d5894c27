/*
 * cp_batches.c - see cp_batches.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/cp_batches.h"

#include <stdlib.h>

/* The number of the sample that a rank's group trains on.  Each group of a step
 * has another one. */
static int sample_of(const struct ranks *ranks, int microbatch, int rank,
                     int cp)
{
    return microbatch * ranks_count(ranks) + rank / cp * cp;
}

static bool all_fit(const struct text *text, const struct options *options,
                    int step, int microbatch, int cp)
{
    struct config config = options->config;

    config.cp = cp;
    for (int rank = 0; rank < ranks_count(options->ranks); rank += cp) {
        const int sample = sample_of(options->ranks, microbatch, rank, cp);

        for (int b = 0; b < config.batch; b++) {
            if (text_first_length(text, &config, step, sample, b) >
                config_keys(&config)) {
                return false;
            }
        }
    }
    return true;
}

int cp_batches_choose(const struct text *text, const struct options *options,
                      int step, int microbatch)
{
    int shape = 0;

    if (options->cp_force > 0) {
        while (options->cp[shape] != options->cp_force) {
            shape++;
        }
        return shape;
    }
    while (shape + 1 < options->n_cp &&
           !all_fit(text, options, step, microbatch, options->cp[shape])) {
        shape++;
    }
    return shape;
}

/* Takes one rank's chunks of the document at `start`: its own chunk, and the
 * one at the same distance from the end. */
static int take_document(const struct config *config, int rank, int start,
                         int length, const int *all, int *mine, int *positions)
{
    const int cp = config_cp(config);
    const int n = length / cp; /* odd only if it is the whole document */
    const int half = n / 2;

    for (int i = 0; i < n; i++) {
        const int at = i < half ? start + rank * half + i
                                : start + (2 * cp - 1 - rank) * half + i - half;

        mine[i] = all[at];
        positions[i] = at % config_keys(config);
    }
    return n;
}

/* Takes a rank's part of all documents, and of what is left after the last
 * one. */
static void take_part(const struct config *config, int rank,
                      const struct packing *packing, const int *all, int *mine,
                      int *positions)
{
    const int whole = config->batch * config_keys(config);
    int start = 0, used = 0;

    for (int i = 0; i < packing->n; i++) {
        used += take_document(config, rank, start, packing->padded[i], all,
                              mine + used, positions + used);
        start += packing->padded[i];
    }
    (void)take_document(config, rank, start, whole - start, all, mine + used,
                        positions + used);
}

int cp_batches_sample(const struct text *text, const struct options *options,
                      const struct config *config, int step, int microbatch,
                      int *tokens, int *targets, int *positions,
                      struct packing *packing)
{
    const int cp = config_cp(config);
    const int rank = ranks_number(options->ranks);
    const int sample = sample_of(options->ranks, microbatch, rank, cp);
    const size_t whole = (size_t)config->batch * (size_t)config_keys(config);
    int *all = malloc(2 * whole * sizeof(*all));

    if (all == NULL) {
        return -1;
    }
    if (options->packed) {
        text_pack(text, config, step, sample, all, all + whole, packing);
    } else {
        text_pack_whole(text, config, step, sample, all, all + whole, packing);
    }
    take_part(config, rank % cp, packing, all, tokens, positions);
    take_part(config, rank % cp, packing, all + whole, targets, positions);
    free(all);
    return 0;
}
