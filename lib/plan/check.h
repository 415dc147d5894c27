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

/* Checks everything about a layer except its position in the model.  `where`
 * begins each sentence, up to the field: "layer 3: gh_layer_desc." or
 * "layers[3].". */
gh_status gh_layer_check(const char *where, const gh_layer_desc *desc,
                         gh_error *err);

/* Whether a family may have this name, which becomes a file name: only letters,
 * digits, "_" and "-" are allowed. */
bool gh_family_name_is_good(const char *name);

#endif
