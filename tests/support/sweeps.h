/*
 * sweeps.h - a toy's training, in which each call of the driver fails in turn.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SWEEPS_H
#define SUPPORT_SWEEPS_H

#include "support/toy.h"

struct sweep {
    const char *name;
    const struct toy_options *options;
    const char *mode;       /* settings of the device */
    const uint32_t *counts; /* microbatches of each step */
    uint32_t n_steps;
    bool six_in_turn; /* calls fail, instead of one */
    uint64_t most;    /* failures of an entry that are tried; 0: all */
};

/* Points: without a failure training is exact; and whatever call of an entry
 * fails, for each entry that is called, it is exact or stops with a sentence,
 * and leaves nothing of the library's. */
void sweep_all(const struct sweep *sweep);

#endif
