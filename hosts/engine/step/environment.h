/*
 * environment.h - the environment that a session is opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_ENVIRONMENT_H
#define ENGINE_ENVIRONMENT_H

#include "step/options.h"

struct environment {
    const char **strings; /* NAME=value; NULL is last */
    char *trace;          /* memory of one of the strings */
    char timeout[40];     /* of another one */
    char limit[60];
};

/* The process environment, with these changes: the driver is the one that the
 * engine runs on; variables that only the engine reads are left out, and so is
 * the trace file if another rank's session writes it, but that each rank of a
 * pipeline writes one; options of the command line set variables that are not
 * set; and GRAPHHOOKS_MEMORY_LIMIT is as given, but for 0.  Returns 0, or -1
 * when memory ran out.  In both cases environment_free() frees it. */
int environment_make(struct environment *environment,
                     const struct options *options, enum mode mode, bool dry,
                     uint64_t limit);
void environment_free(struct environment *environment);

/* Reports options of the command line that a variable overrules.  A variable
 * wins, because a run is switched by its environment, but not silently. */
void environment_say_who_wins(const struct options *options);

#endif
