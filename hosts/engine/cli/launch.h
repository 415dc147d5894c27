/*
 * launch.h - how the ranks of a run come to be: as threads of this process, or
 * as processes that mpirun, torchrun or the program itself starts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LAUNCH_H
#define ENGINE_LAUNCH_H

#include "cli/command.h"
#include "step/failure_pipe.h"

#include <sys/types.h>

struct launch {
    int rank, n;       /* of this process, if ranks are processes */
    int local;         /* its number on this machine, which chooses its
                          device */
    bool processes;
    struct failure_pipe line;
    bool forked;                /* by this program */
    bool waits;                 /* this process only waits for the ranks */
    pid_t children[RANKS_MOST]; /* the ranks, if it waits */
};

/* Reads the variables of a launcher, which say how many ranks there are.
 * Returns 0, or -1 with a sentence about the command line or the variables. */
int launch_find(struct launch *launch, struct command *command, char *error,
                size_t error_bytes);

/* Forks, if that was asked for.  This must come before any driver is loaded,
 * because drivers do not work after a fork.  Returns 0, or -1 with a
 * sentence. */
int launch_begin(struct launch *launch, const struct command *command,
                 char *error, size_t error_bytes);

/* Connects the processes.  Returns 0, or -1 with a sentence. */
int launch_connect(struct launch *launch, int limit_s, char *error,
                   size_t error_bytes);

/* In the process that has forked: waits for all ranks.  Returns the status of
 * the first rank that failed, or else rank 0's. */
int launch_wait(struct launch *launch, int limit_s);

#endif
