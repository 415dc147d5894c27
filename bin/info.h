/*
 * info.h - `graphhooks info`: what this machine has for the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_INFO_H
#define BIN_INFO_H

#include <stdbool.h>

/* Prints to stdout.  A machine without a GPU is a finding, not a failure. */
void info_print(bool json);

#endif
