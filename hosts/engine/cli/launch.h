/*
 * launch.h - how the ranks of a run have come to be: threads of this process,
 * or processes that mpirun, torchrun or the program itself has started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LAUNCH_H
#define ENGINE_LAUNCH_H

#include "cli/command.h"
#include "step/lifeline.h"

#include <sys/types.h>

struct launch {
    int rank, n;       /* of this process, where they are processes */
    int local;         /* its number on this machine: which device it takes */
    bool processes;
    struct lifeline line;
    bool forked;                /* by the program itself */
    bool waits;                 /* this process only waits for the ranks */
    pid_t children[RANKS_MOST]; /* which are these */
};

/* Looks for the variables of a launcher, which say how many ranks there are.
 * 0, or -1 with a sentence about the command line or the variables. */
int launch_find(struct launch *launch, struct command *command, char *error,
                size_t error_bytes);

/* Forks, where that was asked for: before any driver is loaded, as those do not
 * outlive a fork.  0, or -1 with a sentence. */
int launch_begin(struct launch *launch, const struct command *command,
                 char *error, size_t error_bytes);

/* Connects the processes.  0, or -1 with a sentence. */
int launch_connect(struct launch *launch, int limit_s, char *error,
                   size_t error_bytes);

/* In the process that has forked: waits for all ranks, and returns the status
 * of the first that failed, or rank 0's. */
int launch_wait(struct launch *launch, int limit_s);

#endif
