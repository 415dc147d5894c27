/*
 * settings.h - what a run is asked to be: its words, and who writes them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SETTINGS_H
#define SOFTCUDA_SETTINGS_H

#include "softcuda/soft.h"

#include <stdbool.h>

/* The defaults, and over them SOFTCUDA_*.  What is wrong there is said on
 * standard error and left out.  May ask for failures. */
struct settings settings_of_environment(void);

/* Takes words such as "SEED=3 RACES=0"; NULL is none.  False when one is not
 * understood; the others count all the same.  May ask for failures. */
bool settings_take(struct settings *set, const char *text);

#endif
