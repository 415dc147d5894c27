/*
 * output.h - checks the files of --json and --trace before and after the run.
 *
 * A wrong path is reported before the first step and not after the last one.
 * The library writes the trace, and logs what went wrong with it.  Whether the
 * trace is whole is read from the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OUTPUT_H
#define ENGINE_OUTPUT_H

#include "cli/command.h"

/* Before the run.  Returns 0, or -1 with a sentence that names the option. */
int output_check(const struct command *command, char *error,
                 size_t error_bytes);

/* After the run.  Fails in the same way if the trace is not whole. */
int output_check_trace(const struct command *command, char *error,
                       size_t error_bytes);

#endif
