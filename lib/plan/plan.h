/*
 * plan.h - which parts are captured, and why.  These are pure functions of the
 * model and the options: they use no device, no clock and no environment.
 *
 * lib/abi makes a plan when a session opens; lib/capture reads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_PLAN_H
#define GH_PLAN_PLAN_H

#include <graphhooks/layer.h>
#include <graphhooks/plan.h>

#include "base/path.h"
#include "plan/rules.h"
#include "plan/traits.h"

/* A request that is not met in every layer. */
struct gh_plan_note {
    uint32_t n_layers; /* how many it concerns; 0: there is no such note */
    uint32_t first, last;
    uint32_t causes; /* of all these layers together */
};

struct gh_plan {
    struct gh_plan_options options;
    gh_segment *segments; /* all chunks, in order */
    uint32_t n_segments;
    uint32_t *chunk_start; /* n_chunks + 1 indices into segments */
    uint32_t n_chunks;
    struct gh_layer *layers; /* copies, names too */
    struct gh_layer_plan *layer_plans;
    uint32_t n_layers;
    struct gh_traits_set traits;
    gh_model_desc model; /* what holds for all layers */
    struct gh_plan_note notes[GH_CAUSE_COUNT];
    uint32_t absent; /* GH_SCOPE bits that no layer has anything of */
};

/* Copies what it needs of the model.  Every layer is as its kind says. */
gh_status gh_plan_make(const gh_model *model,
                       const struct gh_plan_options *options,
                       struct gh_plan *plan, gh_error *err);
/* Makes a plan as gh_plan_make() does, for a model whose families were asked.
 * Takes the set over even if it fails, and leaves `set` empty. */
GH_COLD gh_status gh_plan_make_with(const gh_model *model,
                                    struct gh_traits_set *set,
                                    const struct gh_plan_options *options,
                                    struct gh_plan *plan, gh_error *err);
void gh_plan_free(struct gh_plan *plan);

const char *gh_granularity_name(enum gh_granularity granularity);

/* How many bytes of a name to show where there is room for `most`.  A character
 * of several bytes is shown whole or not at all. */
int gh_shown_bytes(const char *name, int most);

/* refuse.c: whether there can be a plan.  The first call comes before the rules
 * are applied, and puts words that name nothing into plan->absent; the second
 * comes after them. */
GH_COLD gh_status gh_plan_check_model(struct gh_plan *plan, gh_error *err);
gh_status gh_plan_check_scope(const struct gh_plan *plan, gh_error *err);

/* Whether a layer continues the one before it.  A layer that begins a chunk or
 * a depth of multi-token prediction does not: its input comes from outside of
 * the model. */
bool gh_plan_follows(const struct gh_plan *plan, uint32_t layer);

/* What a host must be able to run for the segment: GH_CAN_*. */
uint32_t gh_plan_needs(const struct gh_plan *plan, uint32_t segment);

/* Whether two segments are both captured, or both eager for the same reason. */
bool gh_plan_same_reason(const struct gh_plan *plan, const gh_segment *a,
                         const gh_segment *b);

/* Whether a segment holds a part of a layer. */
bool gh_plan_covers(const struct gh_plan *plan, const gh_segment *segment,
                    uint32_t layer, gh_part part);

/* borders.c: the tensors that cross one side of a segment, in the order of
 * gh_tensor; returns how many. */
uint32_t gh_plan_borders(const struct gh_plan *plan, uint32_t segment,
                         gh_side side, gh_border borders[GH_TENSOR_COUNT]);
/* The names that the outputs of a pass may have: bit n stands for gh_tensor
 * n. */
uint32_t gh_plan_names(const struct gh_plan *plan, uint32_t segment,
                       gh_direction direction);

/* work.c: whether a segment has weight gradients in a pass of their own.  It
 * has none where weight gradients are not delayed. */
bool gh_plan_leaves_wgrad(const struct gh_plan *plan, uint32_t segment);
/* The groups of ranks that a segment communicates in, as bits by
 * gh_group_names[].  Groups of one rank, or of unknown size, are left out. */
uint32_t gh_plan_groups(const struct gh_plan *plan, uint32_t segment);
extern const char *const gh_group_names[]; /* ends with NULL */

/* Writes "layer 3 attn", and if the segment goes on "..mlp" or "..layer 7 mlp".
 * If there is no room, the names of layers are cut, and the parts are not. */
void gh_plan_extent(const struct gh_plan *plan, const gh_segment *segment,
                    char *text, size_t bytes);

/* Writes the note of a cause; under GH_CAUSE_NONE it is the note of the words
 * that no layer has anything of.  False: there is no such note. */
bool gh_plan_note_text(const struct gh_plan *plan, enum gh_cause cause,
                       char *text, size_t bytes);

/* Writes the words of a scope, such as "attn,mlp". */
void gh_scope_text(uint32_t scope, char *text, size_t bytes);

/* remedy.c: writes what to change so that the part is captured.  False: it is
 * captured already. */
bool gh_plan_remedy(const struct gh_plan *plan, uint32_t layer, gh_part part,
                    char *text, size_t bytes);

/* In text, layers that are treated alike are shown once. */
void gh_plan_write(const struct gh_plan *plan, gh_format format,
                   gh_write_fn *write, void *user);
/* Writes text with a line for every segment. */
void gh_plan_write_all(const struct gh_plan *plan, gh_write_fn *write,
                       void *user);

#endif
