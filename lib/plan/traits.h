/*
 * traits.h - the parts and properties of a layer, given by its kind or by its
 * family.
 *
 * lib/family asks the families and fills a set.  A plan takes the set over and
 * keeps it, so every text in it lives as long as the plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PLAN_TRAITS_H
#define GH_PLAN_TRAITS_H

#include <graphhooks/family.h>

#include "plan/model.h"

#include <stdbool.h>

/* A family that was asked. */
struct gh_traits_source {
    char name[GH_FAMILY_NAME];
    char *file;
};

/* What a family said of one layer, or of several that are alike. */
struct gh_traits {
    const struct gh_traits_source *source;
    /* It follows the rules of family.h.  Unused fields are zero, and `names`
     * holds the names of its tensors. */
    gh_family_layer layer;
    char names[GH_FAMILY_TENSORS][GH_FAMILY_NAME];
    uint32_t first, n_layers; /* the first such layer, and how many */
};

/* All zero if no layer has a family. */
struct gh_traits_set {
    struct gh_traits_source **sources;
    uint32_t n_sources;
    struct gh_traits **traits;
    uint32_t n_traits;
    uint32_t n_layers;
    const struct gh_traits **of_layer; /* NULL: the layer is as its kind says */
};

void gh_traits_free(struct gh_traits_set *set);

/* The layer's parts in their order; returns how many there are. */
uint32_t gh_layer_parts(const struct gh_layer *layer, const gh_part **parts_p);
bool gh_layer_has(const struct gh_layer *layer, gh_part part);
/* The part beside the embedding or the head of a layer that has it; of any
 * other part, the part itself. */
gh_part gh_layer_beside(const struct gh_layer *layer, gh_part part);

/* Whether the layer's family, if it has one, lets a graph hold the part. */
bool gh_layer_may_capture(const struct gh_layer *layer, gh_part part);

/* What a part reads besides its inputs: bit n is tensor n of its traits. */
uint32_t gh_layer_tensors(const struct gh_layer *layer, gh_part part);

/* The stages of an overlapped layer in their order, at most GH_FAMILY_NODES;
 * returns how many there are.  If its family names none, the parts decide: in a
 * layer with experts the parts before the dispatch are one stage, and every
 * other part is a stage of its own. */
uint32_t gh_layer_nodes(const struct gh_layer *layer, gh_family_node *nodes);
/* Whether a stage begins with the part. */
bool gh_layer_node_begins(const struct gh_layer *layer, gh_part part);

const char *gh_lane_name(gh_lane lane);

#endif
