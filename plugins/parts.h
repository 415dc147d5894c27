/*
 * parts.h - what the families here have in common: their layers' parts.
 *
 * All functions are static, so that every plugin is one file that links
 * against nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PLUGINS_PARTS_H
#define PLUGINS_PARTS_H

#include <graphhooks/family.h>

#include <stdio.h>
#include <string.h>

/* Nothing has to be opened: the library keeps the model valid until close. */
static inline gh_status open_model(const gh_family_model *model, void **ctx_p,
                                   gh_error *err)
{
    (void)err;
    *ctx_p = (void *)model;
    return GH_OK;
}

static inline void close_model(void *ctx)
{
    (void)ctx;
}

static inline const gh_layer_desc *desc_of(const void *ctx, uint32_t i)
{
    return ((const gh_family_model *)ctx)->layers[i];
}

static inline gh_status decline(gh_error *err, const char *sentence)
{
    if (err != NULL) {
        snprintf(err->text, sizeof(err->text), "%s", sentence);
    }
    return GH_ERR_UNSUPPORTED;
}

/* The features of a layer.  A layer of a release before 0.2 has none, and its
 * struct ends before them. */
static inline uint32_t features_of(const gh_layer_desc *desc)
{
    return GH_HAS(desc, gh_layer_desc, features) ? desc->features : 0;
}

static inline void note(gh_family_layer *layer, const char *text)
{
    snprintf(layer->note, sizeof(layer->note), "%s", text);
}

static inline void add_part(gh_family_layer *layer, gh_part part)
{
    layer->parts[layer->n_parts++] = part;
    layer->capturable |= 1u << part;
}

/* Adds the embedding, before the layer's own parts. */
static inline void add_embedding(gh_family_layer *layer,
                                 const gh_layer_desc *desc)
{
    if ((features_of(desc) & GH_FEATURE_EMBEDDING) != 0) {
        add_part(layer, GH_PART_EMBEDDING);
    }
}

/* Adds the head, behind the layer's own parts. */
static inline void add_head(gh_family_layer *layer, const gh_layer_desc *desc)
{
    if ((features_of(desc) & GH_FEATURE_HEAD) != 0) {
        add_part(layer, GH_PART_HEAD);
    }
}

/* Lets the first node begin with the embedding, and the last one end with the
 * head. */
static inline void widen_nodes(gh_family_layer *layer)
{
    layer->nodes[0].first = layer->parts[0];
    layer->nodes[layer->n_nodes - 1].last = layer->parts[layer->n_parts - 1];
}

static inline void add_node(gh_family_layer *layer, gh_part first, gh_part last,
                            gh_lane lane)
{
    layer->nodes[layer->n_nodes++] =
        (gh_family_node){ .first = first, .last = last, .lane = lane };
}

static inline void add_experts(gh_family_layer *layer)
{
    for (gh_part part = GH_PART_MOE_ROUTER; part <= GH_PART_MOE_POST; part++) {
        add_part(layer, part);
    }
}

/*
 * Adds the stages of a layer.  An overlapped layer hides its exchanges of
 * tokens behind the compute of another microbatch.  What comes before the
 * dispatch is one stage, and so is what follows the combine.  In a dense layer
 * attention and MLP are a stage each, because each can hide an exchange of the
 * other microbatch.
 */
static inline void add_expert_nodes(gh_family_layer *layer)
{
    add_node(layer, layer->parts[0], GH_PART_MOE_PREPROCESS, GH_LANE_COMPUTE);
    add_node(layer, GH_PART_MOE_DISPATCH, GH_PART_MOE_DISPATCH, GH_LANE_COMM);
    add_node(layer, GH_PART_MOE_EXPERTS, GH_PART_MOE_EXPERTS, GH_LANE_COMPUTE);
    add_node(layer, GH_PART_MOE_COMBINE, GH_PART_MOE_COMBINE, GH_LANE_COMM);
    add_node(layer, GH_PART_MOE_POST, GH_PART_MOE_POST, GH_LANE_COMPUTE);
}

static inline void note_experts(gh_family_layer *layer,
                                const gh_layer_desc *desc)
{
    const uint32_t features = features_of(desc);

    if ((features & GH_FEATURE_SHARED_OVERLAP) != 0) {
        note(layer, "the shared experts run beside the dispatch");
    } else if ((features & GH_FEATURE_SHARED_EXPERTS) != 0) {
        note(layer, "the shared experts run with the router");
    }
}

/* Adds a node for each of the layer's own parts. */
static inline void add_node_each(gh_family_layer *layer)
{
    for (uint32_t i = 0; i < layer->n_parts; i++) {
        if (layer->parts[i] != GH_PART_EMBEDDING) {
            add_node(layer, layer->parts[i], layer->parts[i], GH_LANE_COMPUTE);
        }
    }
}

/* Adds attention with an MLP or with experts, or one of them alone.  Returns
 * false for any other kind. */
static inline int add_transformer(gh_family_layer *layer,
                                  const gh_layer_desc *desc)
{
    add_embedding(layer, desc);
    switch (desc->kind) {
    case GH_LAYER_DENSE:
        add_part(layer, GH_PART_ATTN);
        add_part(layer, GH_PART_MLP);
        break;
    case GH_LAYER_MOE:
        add_part(layer, GH_PART_ATTN);
        add_experts(layer);
        break;
    case GH_LAYER_ATTN_ONLY:
        add_part(layer, GH_PART_ATTN);
        break;
    case GH_LAYER_MLP_ONLY:
        add_part(layer, GH_PART_MLP);
        break;
    case GH_LAYER_MOE_ONLY:
        add_experts(layer);
        break;
    default:
        return 0;
    }
    if ((layer->capturable & 1u << GH_PART_MOE_ROUTER) != 0) {
        add_expert_nodes(layer);
        note_experts(layer, desc);
    } else {
        add_node_each(layer);
    }
    add_head(layer, desc);
    widen_nodes(layer);
    return 1;
}

#endif
