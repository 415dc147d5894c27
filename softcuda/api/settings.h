/*
 * settings.h - the settings of a run: their words, and where they come from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SETTINGS_H
#define SOFTCUDA_SETTINGS_H

#include "softcuda/engine/soft.h"

#include <stdbool.h>

/* The defaults, changed by SOFTCUDA_*.  What is wrong there is reported on
 * standard error and left out.  May ask for failures. */
struct settings settings_of_environment(void);

/* Reads words such as "SEED=3 RACES=0"; NULL is none.  False if it does not
 * understand one; the others count all the same.  May ask for failures. */
bool settings_take(struct settings *set, const char *text);

#endif
