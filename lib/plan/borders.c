/*
 * borders.c - the tensors that cross from one segment into a later one.
 *
 * A table names, for each tensor of a mixture of experts, the part that writes
 * it and the parts that may read it.  The hidden states go from each part to
 * the next.  A tensor crosses where its writer and a reader are in different
 * segments.
 *
 * Source: what a partial capture of an MoE layer must hand to the eager rest,
 * as Megatron-LM's captured router and preprocess return it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

bool gh_plan_follows(const struct gh_plan *plan, uint32_t layer)
{
    const struct gh_layer *layers = plan->layers;

    return layer > 0 && layers[layer - 1].chunk == layers[layer].chunk &&
           (layers[layer].features & GH_FEATURE_MTP) == 0;
}

#define PART(name) (UINT32_C(1) << GH_PART_##name)
#define TENSOR(id) (UINT32_C(1) << (id))

static const struct row {
    const char *name, *shape;
    gh_element element;
    gh_part writer;   /* unused for hidden states */
    uint32_t readers; /* unused for hidden states */
} rows[GH_TENSOR_COUNT] = {
    [GH_TENSOR_NONE] = { .name = "none", .shape = "" },
    [GH_TENSOR_HIDDEN] = { .name = "hidden",
                           .shape = "[tokens, hidden]",
                           .element = GH_ELEMENT_ACTIVATION },
    [GH_TENSOR_RESIDUAL] = { .name = "residual",
                             .shape = "[tokens, hidden]",
                             .element = GH_ELEMENT_ACTIVATION,
                             .writer = GH_PART_MOE_ROUTER,
                             .readers = PART(MOE_POST) },
    [GH_TENSOR_PROBS] = { .name = "probs",
                          .shape = "[tokens, experts] or [tokens, top_k]",
                          .element = GH_ELEMENT_PROB,
                          .writer = GH_PART_MOE_ROUTER,
                          .readers = PART(MOE_PREPROCESS) | PART(MOE_DISPATCH) |
                                     PART(MOE_EXPERTS) | PART(MOE_COMBINE) |
                                     PART(MOE_POST) },
    [GH_TENSOR_ROUTING_MAP] = { .name = "routing_map",
                                .shape = "[tokens, experts] or [tokens, top_k]",
                                .element = GH_ELEMENT_MASK,
                                .writer = GH_PART_MOE_ROUTER,
                                .readers = PART(MOE_PREPROCESS) |
                                           PART(MOE_DISPATCH) |
                                           PART(MOE_COMBINE) },
    [GH_TENSOR_SHARED_OUTPUT] = { .name = "shared_output",
                                  .shape = "[tokens, hidden]",
                                  .element = GH_ELEMENT_ACTIVATION,
                                  .writer = GH_PART_MOE_ROUTER,
                                  .readers = PART(MOE_POST) },
    [GH_TENSOR_DISPATCH] = { .name = "dispatch",
                             .shape = "as the dispatcher has them",
                             .element = GH_ELEMENT_INDEX,
                             .writer = GH_PART_MOE_PREPROCESS,
                             .readers = PART(MOE_DISPATCH) | PART(MOE_EXPERTS) |
                                        PART(MOE_COMBINE) },
};

const char *gh_tensor_name(gh_tensor tensor)
{
    return tensor < GH_TENSOR_COUNT ? rows[tensor].name : "?";
}

/* The position of a part in its layer, which must have the part. */
static uint32_t position(const struct gh_plan *plan, uint32_t layer,
                         gh_part part)
{
    const gh_part *parts;
    const uint32_t n = gh_layer_parts(&plan->layers[layer], &parts);
    uint32_t i = 0;

    while (i < n && parts[i] != part) {
        i++;
    }
    return i;
}

static uint32_t n_parts(const struct gh_plan *plan, uint32_t layer)
{
    const gh_part *parts;

    return gh_layer_parts(&plan->layers[layer], &parts);
}

static gh_part part_at(const struct gh_plan *plan, uint32_t layer, uint32_t i)
{
    const gh_part *parts;

    gh_layer_parts(&plan->layers[layer], &parts);
    return parts[i];
}

/* The positions of a segment's parts in one of its layers: from *first_p up to
 * *end_p, which is not one of them. */
static void range(const struct gh_plan *plan, const gh_segment *segment,
                  uint32_t layer, uint32_t *first_p, uint32_t *end_p)
{
    *first_p = layer == segment->first_layer
                   ? position(plan, layer, segment->first_part)
                   : 0;
    *end_p = layer == segment->last_layer
                 ? position(plan, layer, segment->last_part) + 1
                 : n_parts(plan, layer);
}

bool gh_plan_covers(const struct gh_plan *plan, const gh_segment *segment,
                    uint32_t layer, gh_part part)
{
    uint32_t at, first, end;

    if (layer < segment->first_layer || layer > segment->last_layer) {
        return false;
    }
    at = position(plan, layer, part);
    range(plan, segment, layer, &first, &end);
    return at >= first && at < end;
}

/* Which part writes a tensor in this layer; GH_PART_COUNT: none does. */
static gh_part writer_of(const struct gh_layer *layer, gh_tensor tensor)
{
    if (tensor == GH_TENSOR_SHARED_OUTPUT) {
        if ((layer->features & GH_FEATURE_SHARED_EXPERTS) == 0) {
            return GH_PART_COUNT;
        }
        /* Shared experts that overlap are joined at the combine. */
        if ((layer->features & GH_FEATURE_SHARED_OVERLAP) != 0) {
            return GH_PART_MOE_COMBINE;
        }
    }
    return rows[tensor].writer;
}

/* The parts of a mask that are at positions `first` to `end` of a layer,
 * without `end`. */
static uint32_t among(const struct gh_plan *plan, uint32_t layer,
                      uint32_t first, uint32_t end, uint32_t mask)
{
    uint32_t found = 0;

    for (uint32_t i = first; i < end; i++) {
        found |= mask & UINT32_C(1) << part_at(plan, layer, i);
    }
    return found;
}

/* The segment that holds the part: this one or one before it. */
static uint32_t segment_of(const struct gh_plan *plan, uint32_t segment,
                           uint32_t layer, gh_part part)
{
    while (!gh_plan_covers(plan, &plan->segments[segment], layer, part)) {
        segment--;
    }
    return segment;
}

static gh_border border_of(gh_tensor tensor, uint32_t segment, uint32_t layer,
                           gh_part writer, uint32_t readers)
{
    return (gh_border){
        .struct_size = sizeof(gh_border),
        .tensor = tensor,
        .element = rows[tensor].element,
        .segment = segment,
        .layer = layer,
        .writer = writer,
        .readers = readers,
        .name = rows[tensor].name,
        .shape = rows[tensor].shape,
    };
}

/* Whether the segment begins with the first part of its first layer. */
static bool begins_layer(const struct gh_plan *plan, const gh_segment *segment)
{
    return position(plan, segment->first_layer, segment->first_part) == 0;
}

/* Hidden states leave every segment that does not end with the head.  They
 * enter every segment except those whose input comes from outside of the model.
 */
static bool hidden_crosses(const struct gh_plan *plan, uint32_t segment,
                           gh_side side, gh_border *border)
{
    const gh_segment *writer = &plan->segments[segment];
    uint32_t next, readers = 0;

    if (side == GH_SIDE_IN) {
        if (begins_layer(plan, writer) &&
            !gh_plan_follows(plan, writer->first_layer)) {
            return false;
        }
        writer--;
        segment--;
    }
    if (writer->last_part == GH_PART_HEAD) {
        return false;
    }
    next = position(plan, writer->last_layer, writer->last_part) + 1;
    if (next < n_parts(plan, writer->last_layer)) {
        readers = UINT32_C(1) << part_at(plan, writer->last_layer, next);
    }
    *border = border_of(GH_TENSOR_HIDDEN, segment, writer->last_layer,
                        writer->last_part, readers);
    return true;
}

/* Whether a tensor crosses one side of a segment.  In: it is written before the
 * segment, in the segment's first layer, and read in the segment.  Out: it is
 * written in the segment, and read after it in the segment's last layer. */
static bool crosses(const struct gh_plan *plan, uint32_t segment, gh_side side,
                    gh_tensor tensor, gh_border *border)
{
    const gh_segment *s = &plan->segments[segment];
    const uint32_t layer = side == GH_SIDE_IN ? s->first_layer : s->last_layer;
    const gh_part writer = writer_of(&plan->layers[layer], tensor);
    uint32_t first, end, at, readers;

    if (!gh_layer_has(&plan->layers[layer], writer)) {
        return false;
    }
    range(plan, s, layer, &first, &end);
    at = position(plan, layer, writer);
    if (side == GH_SIDE_IN) {
        readers = among(plan, layer, first, end, rows[tensor].readers);
    } else {
        readers =
            among(plan, layer, end, n_parts(plan, layer), rows[tensor].readers);
    }
    if (readers == 0 ||
        (side == GH_SIDE_IN ? at >= first : at < first || at >= end)) {
        return false;
    }
    *border = border_of(
        tensor, segment_of(plan, segment, layer, writer), layer, writer,
        among(plan, layer, at + 1, n_parts(plan, layer), rows[tensor].readers));
    return true;
}

uint32_t gh_plan_borders(const struct gh_plan *plan, uint32_t segment,
                         gh_side side, gh_border borders[GH_TENSOR_COUNT])
{
    uint32_t n = 0;

    n += hidden_crosses(plan, segment, side, &borders[n]);
    for (gh_tensor tensor = GH_TENSOR_HIDDEN + 1; tensor < GH_TENSOR_COUNT;
         tensor++) {
        n += crosses(plan, segment, side, tensor, &borders[n]);
    }
    return n;
}

static bool has_gradient(const gh_border *border)
{
    return border->element == GH_ELEMENT_ACTIVATION ||
           border->element == GH_ELEMENT_PROB;
}

/* The hidden states may always be named, except in GH_WGRAD: the backward of a
 * first segment leaves the gradient of its input, which crosses no border. */
uint32_t gh_plan_names(const struct gh_plan *plan, uint32_t segment,
                       gh_direction direction)
{
    gh_border borders[GH_TENSOR_COUNT];
    uint32_t names = TENSOR(GH_TENSOR_NONE) | TENSOR(GH_TENSOR_HIDDEN);
    uint32_t n;

    if (direction == GH_WGRAD) {
        return TENSOR(GH_TENSOR_NONE);
    }
    n = gh_plan_borders(plan, segment,
                        direction == GH_FORWARD ? GH_SIDE_OUT : GH_SIDE_IN,
                        borders);
    for (uint32_t i = 0; i < n; i++) {
        if (direction == GH_FORWARD || has_gradient(&borders[i])) {
            names |= TENSOR(borders[i].tensor);
        }
    }
    return names;
}
