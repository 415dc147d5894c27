/*
 * environment.h - the environment that a session is opened with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_ENVIRONMENT_H
#define ENGINE_ENVIRONMENT_H

#include "step/options.h"

struct environment {
    const char **strings; /* NAME=value; NULL ends it */
    char *trace;          /* storage of one of them */
    char timeout[40];     /* and of others */
    char overlap[40];
};

/* The process environment, except: the driver is the one that the engine runs
 * on; what only the engine reads is left out, and so is the file that another
 * rank's session writes; and options of the command line stand in for variables
 * that are not set.  0, or -1 when memory ran out; environment_free() takes it
 * either way. */
int environment_make(struct environment *environment,
                     const struct options *options, enum mode mode, bool dry);
void environment_free(struct environment *environment);

/* A run is switched by its environment, so a variable wins over the option of
 * the command line that says the same; but not without a word. */
void environment_say_who_wins(const struct options *options);

#endif
