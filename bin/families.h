/*
 * families.h - the families of the model that a command looks at.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_FAMILIES_H
#define BIN_FAMILIES_H

#include "family/family.h"

/* Asks the families that the model names, found as a session finds them.
 * One that is not found is told with the nearest that is. */
gh_status families_resolve(const gh_model *model, struct gh_traits_set *set,
                           gh_error *err);

/* Prints where families are looked for, and those that are found, as a part
 * of `graphhooks info`; as JSON, fields with the comma before them. */
void families_print(bool json);

#endif
