/*
 * plan.h - `graphhooks plan`: which parts of a model are captured, and why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_PLAN_H
#define BIN_PLAN_H

/* lib/plan has a header of this name. */
#include "plan/plan.h"

/* The command; argv[1] is "plan".  Returns the exit status. */
int plan_command(int argc, char **argv);

/* One decision in full, of "LAYER.PART"; the exit status. */
int plan_why(const struct gh_plan *plan, const char *which);

/* The tables of doc/scopes.md. */
void plan_table(void);

#endif
