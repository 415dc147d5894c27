/*
 * kinds.h - the parts of each kind of layer in the order they run, and the
 * words for model.h's values.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_KINDS_H
#define GH_PLAN_KINDS_H

#include <graphhooks/model.h>

#include <stdbool.h>

#define GH_KIND_COUNT 6

struct gh_kind {
    const char *name;
    uint32_t n_parts;
    gh_part parts[7];
};

/* By gh_layer_kind. */
extern const struct gh_kind gh_kinds[GH_KIND_COUNT];

const char *gh_part_name(gh_part part);

bool gh_kind_has(gh_layer_kind kind, gh_part part);

/* How the values of model.h are spelled; each list ends with NULL. */
extern const char *const gh_direction_names[];  /* by gh_direction */
extern const char *const gh_kind_names[];       /* by gh_layer_kind */
extern const char *const gh_dispatcher_names[]; /* by gh_dispatcher */
extern const char *const gh_backend_names[];    /* by gh_backend */
extern const char *const gh_feature_names[];    /* bit n of GH_FEATURE_* */
extern const char *const gh_module_names[];     /* bit n of GH_MODULE_* */

#endif
