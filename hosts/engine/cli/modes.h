/*
 * modes.h - runs all modes of a command line on one rank, one after the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MODES_H
#define ENGINE_MODES_H

#include "cli/command.h"
#include "step/train.h"

struct modes {
    const struct command *command;
    struct options options; /* the command's, with what is the rank's own */
    struct device *dev;
    const struct text *text;
    train_progress_fn *progress;
    struct result results[MAX_MODES + 1];
    int n; /* modes that have run */
    char error[1024]; /* the mode that failed, and a sentence */
};

/* Returns 0, or -1 with modes->error.  In both cases results[] has the modes
 * that have run, and modes_free() frees them. */
int modes_run(struct modes *modes);
void modes_free(struct modes *modes);

#endif
