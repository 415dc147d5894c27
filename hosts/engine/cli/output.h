/*
 * output.h - the files of --json and --trace, looked at before the run and
 * after it.
 *
 * A path is wrong before the first step, not after the last one.  The trace
 * is the library's to write, which says in its log what went wrong with it;
 * that a run has no whole trace is told by the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "cli/command.h"

/* Before the run: 0; or -1 with a sentence that names the option. */
int output_check(const struct command *command, char *error,
                 size_t error_bytes);

/* After it: whether the trace is whole, in the same words. */
int output_check_trace(const struct command *command, char *error,
                       size_t error_bytes);

#endif
