/*
 * kinds.h - the parts of each kind of layer in the order they run, and the
 * words for model.h's values.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_KINDS_H
#define GH_PLAN_KINDS_H

#include <graphhooks/model.h>
#include <graphhooks/session.h>

#include <stdbool.h>

#define GH_KIND_COUNT 6

struct gh_kind {
    const char *name;
    uint32_t n_parts; /* without the two ends */
    /* The embedding, its own parts, the head; then nothing. */
    gh_part parts[9];
};

/* By gh_layer_kind. */
extern const struct gh_kind gh_kinds[GH_KIND_COUNT];

const char *gh_part_name(gh_part part);

/* Whether it is one of the kind's own parts. */
bool gh_kind_has(gh_layer_kind kind, gh_part part);

/* How the values of model.h are spelled; each list ends with NULL. */
extern const char *const gh_direction_names[];  /* by gh_direction */
extern const char *const gh_kind_names[];       /* by gh_layer_kind */
extern const char *const gh_dispatcher_names[]; /* by gh_dispatcher */
extern const char *const gh_backend_names[];    /* by gh_backend */
extern const char *const gh_feature_names[];    /* bit n of GH_FEATURE_* */
extern const char *const gh_module_names[];     /* bit n of GH_MODULE_* */

/* The values of gh_reason; each has a name in kinds.c. */
#define GH_REASONS (GH_REASON_RANKS + 1)

/* Where a module lies in a layer (modules.def). */
enum gh_module_part {
    GH_MODULE_PART_ATTN,
    GH_MODULE_PART_NORM,
    GH_MODULE_PART_MLP,
    GH_MODULE_PART_EXPERTS,
    GH_MODULE_PART_SHARED,
    GH_MODULE_PART_LAYER
};

/* How many there are, all of them, and those that are groups of tensors. */
enum {
    GH_MODULE_COUNT = 0
#define GH_MODULE_ROW(id, word, part, is_group) +1
#include "plan/modules.def"
#undef GH_MODULE_ROW
    ,
    GH_MODULES_ALL = 0
#define GH_MODULE_ROW(id, word, part, is_group) | GH_MODULE_##id
#include "plan/modules.def"
#undef GH_MODULE_ROW
    ,
    GH_MODULES_OF_TENSORS = 0
#define GH_MODULE_ROW(id, word, part, is_group) \
    | (is_group ? GH_MODULE_##id : 0)
#include "plan/modules.def"
#undef GH_MODULE_ROW
};
_Static_assert(GH_MODULES_ALL == (1 << GH_MODULE_COUNT) - 1,
               "modules.def has a row for each bit of GH_MODULE_*, in order");

/* The modules of one part of a layer. */
uint32_t gh_modules_in(enum gh_module_part part);

#endif
