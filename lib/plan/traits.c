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
    if (layer->traits != NULL) {
        *parts_p = layer->traits->layer.parts;
        return layer->traits->layer.n_parts;
    }
    *parts_p = gh_kinds[layer->kind].parts;
    return gh_kinds[layer->kind].n_parts;
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

const char *gh_lane_name(gh_lane lane)
{
    return lane == GH_LANE_COMM ? "comm" : "compute";
}
