/*
 * traits.c - see traits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/traits.h"

#include "plan/kinds.h"

#include <stdlib.h>
#include <string.h>

void gh_traits_free(struct gh_traits_set *set)
{
    for (uint32_t i = 0; i < set->n_traits; i++) {
        free(set->traits[i]);
    }
    for (uint32_t i = 0; i < set->n_sources; i++) {
        free(set->sources[i]->file);
        free(set->sources[i]);
    }
    free(set->traits);
    free(set->sources);
    free(set->of_layer);
    memset(set, 0, sizeof(*set));
}

uint32_t gh_layer_parts(const struct gh_layer *layer, const gh_part **parts_p)
{
    const bool embeds = (layer->features & GH_FEATURE_EMBEDDING) != 0;
    const bool heads = (layer->features & GH_FEATURE_HEAD) != 0;

    if (layer->traits != NULL) {
        *parts_p = layer->traits->layer.parts;
        return layer->traits->layer.n_parts;
    }
    *parts_p = gh_kinds[layer->kind].parts + (embeds ? 0 : 1);
    return gh_kinds[layer->kind].n_parts + embeds + heads;
}

gh_part gh_layer_beside(const struct gh_layer *layer, gh_part part)
{
    const gh_part *parts;
    const uint32_t n = gh_layer_parts(layer, &parts);

    if (part == GH_PART_EMBEDDING) {
        return parts[1];
    }
    return part == GH_PART_HEAD ? parts[n - 2] : part;
}

bool gh_layer_has(const struct gh_layer *layer, gh_part part)
{
    const gh_part *parts;
    const uint32_t n = gh_layer_parts(layer, &parts);

    for (uint32_t i = 0; i < n; i++) {
        if (parts[i] == part) {
            return true;
        }
    }
    return false;
}

bool gh_layer_may_capture(const struct gh_layer *layer, gh_part part)
{
    return layer->traits == NULL ||
           (layer->traits->layer.capturable & 1u << part) != 0;
}

uint32_t gh_layer_tensors(const struct gh_layer *layer, gh_part part)
{
    uint32_t tensors = 0;

    if (layer->traits == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < layer->traits->layer.n_tensors; i++) {
        if ((layer->traits->layer.tensors[i].parts & 1u << part) != 0) {
            tensors |= 1u << i;
        }
    }
    return tensors;
}

/* Whether a part belongs to the stage before the dispatch.  In a layer with
 * experts, attention, router and preprocess are issued as one stage. */
static bool comes_before_dispatch(const struct gh_layer *layer, gh_part part)
{
    return part <= GH_PART_MOE_PREPROCESS &&
           gh_layer_has(layer, GH_PART_MOE_ROUTER);
}

/* Whether a part is issued with the one before.  The embedding and the head are
 * issued with the part beside them. */
static bool goes_on(const struct gh_layer *layer, gh_part before, gh_part part)
{
    return before == GH_PART_EMBEDDING || part == GH_PART_HEAD ||
           (comes_before_dispatch(layer, before) &&
            comes_before_dispatch(layer, part));
}

uint32_t gh_layer_nodes(const struct gh_layer *layer, gh_family_node *nodes)
{
    const gh_part *parts;
    const uint32_t n_parts = gh_layer_parts(layer, &parts);
    uint32_t n = 0;

    if (layer->traits != NULL && layer->traits->layer.n_nodes > 0) {
        memcpy(nodes, layer->traits->layer.nodes,
               layer->traits->layer.n_nodes * sizeof(*nodes));
        return layer->traits->layer.n_nodes;
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        const gh_part part = parts[i];

        if (i > 0 && goes_on(layer, parts[i - 1], part)) {
            nodes[n - 1].last = part;
            continue;
        }
        nodes[n++] = (gh_family_node){
            .first = part,
            .last = part,
            .lane = part == GH_PART_MOE_DISPATCH || part == GH_PART_MOE_COMBINE
                        ? GH_LANE_COMM
                        : GH_LANE_COMPUTE,
        };
    }
    return n;
}

bool gh_layer_node_begins(const struct gh_layer *layer, gh_part part)
{
    gh_family_node nodes[GH_FAMILY_NODES];
    const uint32_t n = gh_layer_nodes(layer, nodes);

    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].first == part) {
            return true;
        }
    }
    return false;
}

const char *gh_lane_name(gh_lane lane)
{
    return lane == GH_LANE_COMM ? "comm" : "compute";
}
