/*
 * traits.h - what a layer is made of: as its kind says, or as its family.
 *
 * lib/family asks the families and fills a set; a plan takes the set over and
 * keeps it, so every text here lives as long as the plan.
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

/* What a family has said of one layer, or of several alike. */
struct gh_traits {
    const struct gh_traits_source *source;
    /* Valid by the rules of family.h; what is not used of it is zero, and
     * the names of its tensors are below. */
    gh_family_layer layer;
    char names[GH_FAMILY_TENSORS][GH_FAMILY_NAME];
    uint32_t first, n_layers; /* the first such layer, and how many */
};

/* All zero: no layer has a family. */
struct gh_traits_set {
    struct gh_traits_source **sources;
    uint32_t n_sources;
    struct gh_traits **traits;
    uint32_t n_traits;
    uint32_t n_layers;
    const struct gh_traits **of_layer; /* NULL: as the layer's kind says */
};

void gh_traits_free(struct gh_traits_set *set);

/* The layer's parts in their order; how many there are. */
uint32_t gh_layer_parts(const struct gh_layer *layer, const gh_part **parts_p);
bool gh_layer_has(const struct gh_layer *layer, gh_part part);

/* Whether the layer's family, if it has one, lets a graph hold the part. */
bool gh_layer_may_capture(const struct gh_layer *layer, gh_part part);

/* What a part reads besides its inputs: bit n is tensor n of its traits. */
uint32_t gh_layer_tensors(const struct gh_layer *layer, gh_part part);

/* The stages of an overlapped layer in their order, at most GH_FAMILY_NODES;
 * how many there are.  What its family has said, or by its parts: those before
 * the dispatch are one stage, and every other part is one. */
uint32_t gh_layer_nodes(const struct gh_layer *layer, gh_family_node *nodes);
/* Whether one of them begins with the part. */
bool gh_layer_node_begins(const struct gh_layer *layer, gh_part part);

const char *gh_lane_name(gh_lane lane);

#endif
