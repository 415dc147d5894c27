/*
 * families.h - the families of the model that a command looks at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_FAMILIES_H
#define BIN_FAMILIES_H

#include "family/family.h"

/* Asks the families that the model names, found as a session finds them, and
 * has `use` go on with what they say, all in a child: a crash of a family's is
 * told, and so is everything else that is wrong, on stderr after `title`.  A
 * model that names none needs no child.  The exit status. */
int families_use(const gh_model *model, const char *title,
                 int (*use)(void *arg, struct gh_traits_set *set), void *arg);

/* Prints where families are looked for, and those that are found, as a part
 * of `graphhooks info`; as JSON, fields with the comma before them.  Each is
 * loaded in a child of its own. */
void families_print(bool json);

#endif
