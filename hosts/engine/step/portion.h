/*
 * portion.h - which ranks share a microbatch's sequences, and each one's part.
 *
 * How many share it follows from its documents alone, so that every rank comes
 * to the same: the fewest to whom the first document of every row is not too
 * long.  Each group of so many ranks has a sample of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PORTION_H
#define ENGINE_PORTION_H

#include "step/options.h"
#include "step/text.h"

/* Which of options.cp a microbatch takes. */
int portion_choose(const struct text *text, const struct options *options,
                   int step, int microbatch);

/* The rank's part of a microbatch whose sequences config.cp ranks share, and
 * where in its sequence each token is.  0, or -1 when memory ran out. */
int portion_sample(const struct text *text, const struct options *options,
                   const struct config *config, int step, int microbatch,
                   int *tokens, int *targets, int *positions,
                   struct packing *packing);

#endif
