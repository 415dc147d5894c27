/*
 * check.h - what a layer can have, whoever describes it.
 *
 * gh_model_add_layer() and the reader of `graphhooks plan` ask the same
 * rules, so a host in C and a description in a file get the same sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_CHECK_H
#define GH_PLAN_CHECK_H

#include <graphhooks/model.h>

#include <stdbool.h>

/* Everything about a layer but its place in the model.  `where` begins each
 * sentence, up to the field: "layer 3: gh_layer_desc." or "layers[3].". */
gh_status gh_layer_check(const char *where, const gh_layer_desc *desc,
                         gh_error *err);

/* Whether it may name a family, and so a file: no more than letters, digits,
 * "_" and "-". */
bool gh_family_name_is_good(const char *name);

#endif
