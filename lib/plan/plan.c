/*
 * plan.c - cuts a model into segments.
 *
 * rules.c says of every part whether it is graphed and why.  A segment is a
 * maximal run of consecutive parts that are treated alike and that the
 * granularity lets one graph reach over: with `part` each part is a segment,
 * with `layer` a run ends with its layer, with `chunk` with its chunk.  Under
 * EP overlap no run goes on from one node of a layer into the next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "base/error.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum gh_cause cause_of(const struct gh_plan *plan, const gh_segment *s)
{
    const struct gh_layer_plan *layer = &plan->layer_plans[s->first_layer];

    return gh_cause_first(layer->causes[s->first_part]);
}

bool gh_plan_same_reason(const struct gh_plan *plan, const gh_segment *a,
                         const gh_segment *b)
{
    const enum gh_cause cause = cause_of(plan, a);

    if (a->mode != b->mode || cause != cause_of(plan, b)) {
        return false;
    }
    /* Families bring their own sentences. */
    return cause != GH_CAUSE_FAMILY || strcmp(a->reason, b->reason) == 0;
}

/* Whether a part continues the segment before it.  An eager segment has one
 * reason only, which then explains each of its parts. */
static bool joins(const struct gh_plan *plan, const gh_segment *last,
                  const gh_segment *next)
{
    const bool inside = last->last_layer == next->first_layer;

    /* The overlap issues nodes one by one. */
    if (plan->options.ep_overlap &&
        gh_layer_node_begins(&plan->layers[next->first_layer],
                             next->first_part)) {
        return false;
    }
    if ((!inside && !gh_plan_follows(plan, next->first_layer)) ||
        !gh_plan_same_reason(plan, last, next)) {
        return false;
    }
    switch (plan->options.granularity) {
    case GH_GRANULARITY_CHUNK:
        return true;
    case GH_GRANULARITY_LAYER:
        return inside;
    default:
        return false;
    }
}

static void add_part(struct gh_plan *plan, uint32_t i, gh_part part)
{
    const struct gh_layer_plan *layer = &plan->layer_plans[i];
    const gh_segment next = {
        .struct_size = sizeof(next),
        .index = plan->n_segments,
        .chunk = plan->layers[i].chunk,
        .mode = layer->graphed[part] ? GH_SEGMENT_GRAPHED : GH_SEGMENT_EAGER,
        .first_layer = i,
        .last_layer = i,
        .first_part = part,
        .last_part = part,
        .reason = layer->reason[part],
    };

    if (plan->n_segments > 0) {
        gh_segment *last = &plan->segments[plan->n_segments - 1];

        if (joins(plan, last, &next)) {
            last->last_layer = i;
            last->last_part = part;
            return;
        }
    }
    plan->segments[plan->n_segments++] = next;
}

static void cut(struct gh_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const gh_part *parts;
        const uint32_t n_parts = gh_layer_parts(&plan->layers[i], &parts);

        for (uint32_t k = 0; k < n_parts; k++) {
            add_part(plan, i, parts[k]);
        }
        plan->chunk_start[plan->layers[i].chunk + 1] = plan->n_segments;
    }
}

static void flag(struct gh_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        if (gh_plan_leaves_wgrad(plan, i)) {
            plan->segments[i].flags |= GH_SEGMENT_HAS_WGRAD;
        }
    }
}

/* Adds a layer to the note of the first of its causes, which is the one that is
 * told. */
static void note(struct gh_plan *plan, uint32_t causes, uint32_t layer)
{
    struct gh_plan_note *n = &plan->notes[gh_cause_first(causes)];

    if (causes == 0) {
        return;
    }
    if (n->n_layers == 0 || n->last != layer) {
        n->n_layers++;
    }
    if (n->n_layers == 1) {
        n->first = layer;
    }
    n->last = layer;
    n->causes |= causes;
}

static void note_layer(struct gh_plan *plan, uint32_t i)
{
    const struct gh_layer_plan *layer = &plan->layer_plans[i];

    for (uint32_t k = 0; k < GH_ITEM_COUNT; k++) {
        note(plan, layer->refused[k], i);
    }
    note(plan, gh_cause_bit(layer->offload_cause[0]), i);
    note(plan, gh_cause_bit(layer->offload_cause[1]), i);
    note(plan, gh_cause_bit(layer->recompute_cause), i);
}

/* Where the layer's input comes from.  The layer before must be decided. */
static enum gh_before before(const struct gh_plan *plan, uint32_t layer)
{
    const gh_part *parts;
    uint32_t n;

    if (!gh_plan_follows(plan, layer)) {
        return GH_BEFORE_EAGER;
    }
    n = gh_layer_parts(&plan->layers[layer - 1], &parts);
    return plan->layer_plans[layer - 1].graphed[parts[n - 1]] ? GH_BEFORE_GRAPH
                                                              : GH_BEFORE_EAGER;
}

static gh_status apply_rules(struct gh_plan *plan, gh_error *err)
{
    gh_status status = gh_plan_check_model(plan, err);

    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if (plan->options.offloads) {
            plan->layers[i].offload =
                plan->options.offload &
                gh_layer_modules(plan->layers[i].kind,
                                 plan->layers[i].features);
        }
        gh_rules_layer(&plan->layers[i], &plan->options, before(plan, i),
                       &plan->layer_plans[i]);
        note_layer(plan, i);
    }
    return gh_plan_check_scope(plan, err);
}

static bool copy_layers(const gh_model *model, struct gh_plan *plan)
{
    plan->layers = calloc(model->n_layers, sizeof(*plan->layers));
    if (plan->layers == NULL) {
        return false;
    }
    plan->n_layers = model->n_layers;
    for (uint32_t i = 0; i < model->n_layers; i++) {
        plan->layers[i] = model->layers[i];
        plan->layers[i].family = NULL;
        if (i < plan->traits.n_layers) {
            plan->layers[i].traits = plan->traits.of_layer[i];
        }
        plan->layers[i].name = strdup(model->layers[i].name);
        if (plan->layers[i].name == NULL) {
            plan->n_layers = i;
            return false;
        }
    }
    return true;
}

static bool alloc(const gh_model *model, struct gh_plan *plan)
{
    uint32_t n_parts = 0;

    if (!copy_layers(model, plan)) {
        return false;
    }
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const gh_part *parts;

        n_parts += gh_layer_parts(&plan->layers[i], &parts);
    }
    plan->n_chunks = model->layers[model->n_layers - 1].chunk + 1;
    plan->segments = calloc(n_parts, sizeof(*plan->segments));
    plan->chunk_start = calloc(plan->n_chunks + 1, sizeof(uint32_t));
    plan->layer_plans = calloc(model->n_layers, sizeof(*plan->layer_plans));
    return plan->segments != NULL && plan->chunk_start != NULL &&
           plan->layer_plans != NULL;
}

/* Makes the plan.  On failure the caller frees what there is of it. */
static gh_status make(const gh_model *model, struct gh_plan *plan,
                      gh_error *err)
{
    gh_status status;

    if (model->n_layers == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_session_desc.model has no layers: add them with "
                       "gh_model_add_layer");
    }
    status = gh_rules_check_scope(plan->options.scope, err);
    if (status != GH_OK) {
        return status;
    }
    plan->model = model->desc;
    if (!alloc(model, plan)) {
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "no memory for a plan of %u layers", model->n_layers);
    }
    status = apply_rules(plan, err);
    if (status != GH_OK) {
        return status;
    }
    cut(plan);
    flag(plan);
    return GH_OK;
}

gh_status gh_plan_make_with(const gh_model *model, struct gh_traits_set *set,
                            const struct gh_plan_options *options,
                            struct gh_plan *plan, gh_error *err)
{
    gh_status status;

    memset(plan, 0, sizeof(*plan));
    plan->options = *options;
    plan->traits = *set;
    memset(set, 0, sizeof(*set));
    status = make(model, plan, err);
    if (status != GH_OK) {
        gh_plan_free(plan);
    }
    return status;
}

gh_status gh_plan_make(const gh_model *model,
                       const struct gh_plan_options *options,
                       struct gh_plan *plan, gh_error *err)
{
    struct gh_traits_set none = { .n_layers = 0 };

    return gh_plan_make_with(model, &none, options, plan, err);
}

void gh_plan_free(struct gh_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        free(plan->layers[i].name);
    }
    free(plan->layers);
    free(plan->layer_plans);
    free(plan->segments);
    free(plan->chunk_start);
    gh_traits_free(&plan->traits);
    memset(plan, 0, sizeof(*plan));
}

static bool absent_text(const struct gh_plan *plan, char *text, size_t bytes)
{
    char words[64];

    gh_scope_text(plan->absent, words, sizeof(words));
    snprintf(text, bytes,
             "scope %s: no layer of this rank has one; leave it out unless "
             "another rank has",
             words);
    return plan->absent != 0;
}

bool gh_plan_note_text(const struct gh_plan *plan, enum gh_cause cause,
                       char *text, size_t bytes)
{
    const struct gh_plan_note *n = &plan->notes[cause];
    const char *name;
    char more[48] = "", why[384], remedies[256];

    if (cause == GH_CAUSE_NONE) {
        return absent_text(plan, text, bytes);
    }
    if (n->n_layers == 0) {
        return false;
    }
    if (n->n_layers > 1) {
        snprintf(more, sizeof(more), " (and %u more)", n->n_layers - 1);
    }
    name = plan->layers[n->first].name;
    gh_cause_text(cause, &plan->layers[n->first], why, sizeof(why));
    gh_cause_remedies(n->causes, remedies, sizeof(remedies));
    snprintf(text, bytes, "%.*s%s: %s; %s", gh_shown_bytes(name, 60), name,
             more, why, remedies);
    gh_one_line(text);
    return true;
}
