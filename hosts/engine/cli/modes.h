/*
 * modes.h - all modes of a command line, one after the other, of one rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MODES_H
#define ENGINE_MODES_H

#include "cli/command.h"
#include "step/train.h"

struct modes {
    const struct command *command;
    struct options options; /* the command's, with the rank's own */
    struct device *dev;
    const struct text *text;
    train_progress_fn *progress;
    struct result results[MAX_MODES + 1];
    int n; /* that have run */
    char error[1024]; /* why one has not: its name, and a sentence */
};

/* 0, or -1 with modes->error; what has run is in results[] either way, to be
 * freed by modes_free(). */
int modes_run(struct modes *modes);
void modes_free(struct modes *modes);

#endif
