/*
 * cp_batches.h - which ranks share a microbatch's sequences, and each rank's
 * part.
 *
 * How many ranks share depends only on the microbatch's documents, so that
 * every rank finds the same number: the smallest for which the first document
 * of every row is not too long.  Each group of so many ranks has its own
 * sample.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_CP_BATCHES_H
#define ENGINE_CP_BATCHES_H

#include "step/options.h"
#include "step/text.h"

/* Chooses one of options.cp for a microbatch, and returns its index. */
int cp_batches_choose(const struct text *text, const struct options *options,
                      int step, int microbatch);

/* Takes the rank's part of a microbatch whose sequences config.cp ranks share,
 * and where in its sequence each token is.  Returns 0, or -1 when memory ran
 * out. */
int cp_batches_sample(const struct text *text, const struct options *options,
                      const struct config *config, int step, int microbatch,
                      int *tokens, int *targets, int *positions,
                      struct packing *packing);

#endif
