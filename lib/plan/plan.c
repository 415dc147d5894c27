/*
 * plan.c - cuts a model into segments.
 *
 * A segment is a maximal run of consecutive parts that are treated alike and
 * that the granularity lets one graph reach over: with `part` each part is a
 * segment, with `layer` a run ends with its layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "base/error.h"
#include "plan/model.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_PER_LAYER 2 /* a dense layer: attn, mlp */

const char *gh_part_name(gh_part part)
{
    switch (part) {
    case GH_PART_ATTN:
        return "attn";
    case GH_PART_MLP:
        return "mlp";
    default:
        return "?";
    }
}

static bool is_graphed(uint32_t scope, gh_part part)
{
    return scope == 0 || (scope & GH_SCOPE(part)) != 0;
}

static const char *reason_for(uint32_t scope, bool graphed)
{
    if (scope == 0) {
        return "no scope is set, which means whole layers";
    }
    return graphed ? "the scope names it" : "the scope does not name it";
}

/* Whether a part goes on with the segment before it. */
static bool joins(const gh_segment *last, const gh_segment *next,
                  enum gh_granularity granularity)
{
    return granularity == GH_GRANULARITY_LAYER &&
           last->first_layer == next->first_layer && last->mode == next->mode;
}

static void add_part(struct gh_plan *plan, const struct gh_layer *layer,
                     uint32_t i, gh_part part)
{
    bool graphed = is_graphed(plan->scope, part);
    gh_segment next = {
        .struct_size = sizeof(next),
        .index = plan->n_segments,
        .chunk = layer->chunk,
        .mode = graphed ? GH_SEGMENT_GRAPHED : GH_SEGMENT_EAGER,
        .first_layer = i,
        .last_layer = i,
        .first_part = part,
        .last_part = part,
        .reason = reason_for(plan->scope, graphed),
    };

    if (plan->n_segments > 0) {
        gh_segment *last = &plan->segments[plan->n_segments - 1];

        if (joins(last, &next, plan->granularity)) {
            last->last_part = part;
            return;
        }
    }
    plan->segments[plan->n_segments++] = next;
}

static bool copy_names(const gh_model *model, struct gh_plan *plan)
{
    plan->layer_names = calloc(model->n_layers, sizeof(char *));
    if (plan->layer_names == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < model->n_layers; i++) {
        plan->layer_names[i] = strdup(model->layers[i].name);
        if (plan->layer_names[i] == NULL) {
            return false;
        }
    }
    return true;
}

gh_status gh_plan_make(const gh_model *model, uint32_t scope,
                       enum gh_granularity granularity, struct gh_plan *plan,
                       gh_error *err)
{
    const uint32_t n = model->n_layers;

    if (n == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.model has no layers: add them with "
                       "gh_model_add_layer");
    }

    memset(plan, 0, sizeof(*plan));
    plan->scope = scope;
    plan->granularity = granularity;
    plan->n_layers = n;
    plan->n_chunks = model->layers[n - 1].chunk + 1;
    plan->segments = calloc((size_t)n * PARTS_PER_LAYER, sizeof(gh_segment));
    plan->chunk_start = calloc(plan->n_chunks + 1, sizeof(uint32_t));
    if (plan->segments == NULL || plan->chunk_start == NULL ||
        !copy_names(model, plan)) {
        gh_plan_free(plan);
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "no memory for a plan of %u layers", n);
    }

    for (uint32_t i = 0; i < n; i++) {
        const struct gh_layer *layer = &model->layers[i];

        for (gh_part part = 0; part < PARTS_PER_LAYER; part++) {
            add_part(plan, layer, i, part);
        }
        plan->chunk_start[layer->chunk + 1] = plan->n_segments;
    }
    return GH_OK;
}

void gh_plan_free(struct gh_plan *plan)
{
    if (plan->layer_names != NULL) {
        for (uint32_t i = 0; i < plan->n_layers; i++) {
            free(plan->layer_names[i]);
        }
    }
    free(plan->layer_names);
    free(plan->segments);
    free(plan->chunk_start);
    memset(plan, 0, sizeof(*plan));
}
