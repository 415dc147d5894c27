/*
 * parts.c - the layers, and the parts that each of them has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

uint32_t pair_chunks(const struct pair *p)
{
    return p->options.chunks == 0 ? 1 : p->options.chunks;
}

static uint32_t chunk_of(const struct pair *p, uint32_t layer)
{
    return layer * pair_chunks(p) / p->options.layers;
}

bool pair_begins_chunk(const struct pair *p, uint32_t q)
{
    return q == 0 ||
           chunk_of(p, p->layer_of[q]) != chunk_of(p, p->layer_of[q - 1]);
}

bool pair_ends_chunk(const struct pair *p, uint32_t q)
{
    return q + 1 == p->n_parts || pair_begins_chunk(p, q + 1);
}

bool pair_begins_depth(const struct pair *p, uint32_t q)
{
    return q > 0 && q < p->n_parts && p->first[p->layer_of[q]] == q &&
           (p->options.depths & 1u << p->layer_of[q]) != 0;
}

bool pair_is_exchange(gh_part part)
{
    return part == GH_PART_MOE_DISPATCH || part == GH_PART_MOE_COMBINE;
}

bool pair_has_weights(gh_part part)
{
    return part == GH_PART_ATTN || part == GH_PART_MLP ||
           part == GH_PART_MAMBA || part == GH_PART_MOE_EXPERTS;
}

void pair_add_layer(struct pair *p, uint32_t layer)
{
    static const struct {
        gh_part first, last;
    } parts[][2] = {
        [GH_LAYER_DENSE] = { { GH_PART_ATTN, GH_PART_MLP }, { 1, 0 } },
        [GH_LAYER_MOE] = { { GH_PART_ATTN, GH_PART_ATTN },
                           { GH_PART_MOE_ROUTER, GH_PART_MOE_POST } },
        [GH_LAYER_MAMBA] = { { GH_PART_MAMBA, GH_PART_MAMBA }, { 1, 0 } },
        [GH_LAYER_ATTN_ONLY] = { { GH_PART_ATTN, GH_PART_ATTN }, { 1, 0 } },
        [GH_LAYER_MLP_ONLY] = { { GH_PART_MLP, GH_PART_MLP }, { 1, 0 } },
        [GH_LAYER_MOE_ONLY] = { { GH_PART_MOE_ROUTER, GH_PART_MOE_POST },
                                { 1, 0 } },
    };

    p->first[layer] = p->n_parts;
    for (int i = 0; i < 2; i++) {
        for (gh_part part = parts[p->options.kinds[layer]][i].first;
             part <= parts[p->options.kinds[layer]][i].last; part++) {
            p->parts[p->n_parts] = part;
            p->layer_of[p->n_parts++] = layer;
        }
    }
    p->first[layer + 1] = p->n_parts;
}

uint32_t pair_part_at(const struct pair *p, uint32_t layer, gh_part part)
{
    uint32_t q = p->first[layer];

    while (p->parts[q] != part) {
        q++;
    }
    return q;
}

uint32_t pair_border(const struct pair *p, uint32_t layer, uint32_t node,
                     bool last)
{
    const uint32_t end = p->first[layer + 1];
    uint32_t q = p->first[layer], begins = q, n = 0;

    for (; q < end; q++) {
        const gh_part part = p->parts[q];
        const bool goes_on =
            q > p->first[layer] &&
            (part == GH_PART_MOE_ROUTER || part == GH_PART_MOE_PREPROCESS);

        if (!goes_on && q > p->first[layer] && n++ == node) {
            break;
        }
        begins = goes_on ? begins : q;
    }
    return last ? q - 1 : begins;
}

gh_model *pair_describe(const struct pair *p)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < p->options.layers; i++) {
        const bool moe = p->options.kinds[i] == GH_LAYER_MOE ||
                         p->options.kinds[i] == GH_LAYER_MOE_ONLY;
        const gh_layer_desc layer = {
            .struct_size = sizeof(layer),
            .kind = p->options.kinds[i],
            .chunk = chunk_of(p, i),
            .family = p->options.family,
            .experts = moe ? 4 : 0,
            .features = (p->options.depths & 1u << i) != 0 ? GH_FEATURE_MTP : 0,
        };

        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}
