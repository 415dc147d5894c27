/*
 * refuse.c - refuses models and scopes for which there can be no plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* ---- the model ----------------------------------------------------------- */

static bool has(const struct gh_plan *plan, uint32_t layer, uint32_t feature)
{
    return layer < plan->n_layers &&
           (plan->layers[layer].features & feature) != 0;
}

/* Whether the model goes on in this layer after a depth of multi-token
 * prediction in a chunk before. */
static bool comes_after_a_depth(const struct gh_plan *plan, uint32_t layer)
{
    const uint32_t chunk = plan->layers[layer].chunk;

    if (layer == 0 || plan->layers[layer - 1].chunk == chunk ||
        has(plan, layer, GH_FEATURE_MTP)) {
        return false;
    }
    while (layer > 0 && !has(plan, layer, GH_FEATURE_MTP)) {
        layer--;
    }
    return has(plan, layer, GH_FEATURE_MTP);
}

/* What a layer has in a place where no model has it; NULL: nothing. */
static const char *misplaced_in(const struct gh_plan *plan, uint32_t i)
{
    const struct gh_layer *layer = &plan->layers[i];
    const bool embeds = has(plan, i, GH_FEATURE_EMBEDDING);
    const bool heads = has(plan, i, GH_FEATURE_HEAD);

    if (embeds && i > 0) {
        return "an embedding comes before the first layer alone; leave the "
               "feature out";
    }
    if (heads && i + 1 < plan->n_layers && !has(plan, i + 1, GH_FEATURE_MTP)) {
        return "a head comes behind the last layer, and behind the last one "
               "before a depth of multi-token prediction; leave the feature "
               "out";
    }
    if (comes_after_a_depth(plan, i)) {
        return "its chunk comes after a depth of multi-token prediction, which "
               "comes last; let each chunk behind a depth begin with another, "
               "by the feature mtp";
    }
    if ((!embeds && gh_layer_has(layer, GH_PART_EMBEDDING)) ||
        (!heads && gh_layer_has(layer, GH_PART_HEAD))) {
        return "its family gives it an embedding or a head, which its features "
               "do not name; name another family, or the feature";
    }
    return NULL;
}

/* Refuses a layer whose requests exclude each other, wherever it is in the
 * model. */
static gh_status check_layers(const struct gh_plan *plan, gh_error *err)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer *layer = &plan->layers[i];
        const char *misplaced = misplaced_in(plan, i);
        const enum gh_cause cause =
            gh_rules_contradiction(layer, &plan->options);

        if (misplaced != NULL) {
            return gh_fail(err, GH_ERR_CONFIG, "%.*s: %s",
                           gh_shown_bytes(layer->name, 40), layer->name,
                           misplaced);
        }

        if (cause != GH_CAUSE_NONE) {
            return gh_fail(err, GH_ERR_CONFIG, "%.*s: %s; %s",
                           gh_shown_bytes(layer->name, 40), layer->name,
                           gh_causes[cause].why, gh_causes[cause].remedy);
        }
    }
    return GH_OK;
}

/* Refuses experts that cannot be divided evenly among the ranks of a group, and
 * an overlap without a group to exchange tokens in. */
static gh_status check_sizes(const struct gh_plan *plan, gh_error *err)
{
    const uint32_t ep_size = plan->model.ep_size;

    if (ep_size == 1 && plan->options.ep_overlap) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "ep overlap: an ep_size of 1 has no communication to "
                       "hide; switch off the overlap, or give the ep_size of "
                       "the job");
    }
    for (uint32_t i = 0; ep_size != 0 && i < plan->n_layers; i++) {
        const struct gh_layer *layer = &plan->layers[i];

        if (layer->experts % ep_size != 0) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%.*s: its %u experts are divided among an ep_size "
                           "of %u; give a size that leaves no remainder",
                           gh_shown_bytes(layer->name, 40), layer->name,
                           layer->experts, ep_size);
        }
    }
    return GH_OK;
}

/* ---- the scope ----------------------------------------------------------- */

/* The words that name something in some layer. */
static uint32_t words_of(const struct gh_plan *plan)
{
    uint32_t words = 0;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
            if (gh_item_applies(item, &plan->layers[i])) {
                words |= GH_SCOPE(item);
            }
        }
    }
    return words;
}

static bool is_whole(const struct gh_plan *plan)
{
    return (plan->model.flags & GH_MODEL_WHOLE) != 0;
}

static bool is_stage(const struct gh_plan *plan)
{
    return (plan->model.flags & GH_MODEL_STAGE) != 0;
}

/* Refuses words that no layer has anything of.  Of a rank's layers that may be
 * one stage of a pipeline, another stage may have it: then a word is refused only
 * if all the others name nothing either, and of a stage none is. */
static gh_status check_absent(struct gh_plan *plan, gh_error *err)
{
    const uint32_t scope = plan->options.scope;
    const uint32_t own = words_of(plan);
    char absent[64], words[64];

    plan->absent = scope & ~own;
    if (plan->absent == 0 || is_stage(plan) ||
        (plan->absent != scope && !is_whole(plan))) {
        return GH_OK;
    }
    gh_scope_text(plan->absent, absent, sizeof(absent));
    gh_scope_text(own, words, sizeof(words));
    return gh_fail(err, GH_ERR_CONFIG,
                   "scope %s: no layer of this %s has one; leave it out, or "
                   "name one of %s",
                   absent, is_whole(plan) ? "model" : "rank", words);
}

/* Writes what undoes all causes, or only the first of them. */
static void write_remedy(const struct gh_layer_plan *decided,
                         enum gh_scope_item item, bool all, char *text,
                         size_t bytes)
{
    const uint32_t causes = decided->refused[item];
    char leave[48], first[160];

    gh_cause_remedies(causes, text, bytes);
    if (!all) {
        gh_cause_remedies(gh_cause_bit(gh_cause_first(causes)), first,
                          sizeof(first));
        snprintf(text, bytes, "%s, the first of %d changes", first,
                 __builtin_popcount(causes));
    }
    gh_item_instead(decided, item, GH_PART_MOE_ROUTER, text, bytes);
    if (item != GH_ITEM_MOE || decided->instead == 0) {
        snprintf(leave, sizeof(leave), "leave %s out of the scope",
                 gh_item_name(item));
        gh_cause_or(causes, leave, text, bytes);
    }
}

/* Refuses a word that no layer grants.  An error's room is limited, so the
 * remedy comes first, and the reason gets the rest. */
static gh_status refuse_everywhere(const struct gh_plan *plan,
                                   enum gh_scope_item item, uint32_t layer,
                                   gh_error *err)
{
    const size_t least = 48; /* bytes that a reason needs to be understood */
    const struct gh_layer_plan *decided = &plan->layer_plans[layer];
    const char *name = plan->layers[layer].name;
    char where[80], remedy[512], why[sizeof(err->text)];
    size_t room;

    snprintf(where, sizeof(where), "scope %s: %.*s: ", gh_item_name(item),
             gh_shown_bytes(name, 40), name);
    room = sizeof(err->text) - strlen(where) - strlen("; ");
    write_remedy(decided, item, true, remedy, sizeof(remedy));
    if (strlen(remedy) + least > room) {
        write_remedy(decided, item, false, remedy, sizeof(remedy));
    }
    gh_cause_text(gh_cause_first(decided->refused[item]), &plan->layers[layer],
                  why, room - strlen(remedy));
    return gh_fail(err, GH_ERR_CONFIG, "%s%s; %s", where, why, remedy);
}

/* The first layer that refuses the word, if no layer grants it.  UINT32_MAX: a
 * layer grants it, or none has what it names. */
static uint32_t first_refusal(const struct gh_plan *plan,
                              enum gh_scope_item item)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if (!gh_item_applies(item, &plan->layers[i])) {
            continue;
        }
        if ((plan->layer_plans[i].granted & GH_SCOPE(item)) != 0) {
            return UINT32_MAX;
        }
        if (first == UINT32_MAX) {
            first = i;
        }
    }
    return first;
}

/* Whether some word captures something. */
static bool grants_any(const struct gh_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if ((plan->layer_plans[i].granted & plan->options.scope) != 0) {
            return true;
        }
    }
    return false;
}

gh_status gh_plan_check_model(struct gh_plan *plan, gh_error *err)
{
    gh_status status = check_sizes(plan, err);

    if (status != GH_OK) {
        return status;
    }
    status = check_layers(plan, err);
    return status != GH_OK ? status : check_absent(plan, err);
}

/* Refuses words that no layer grants.  Of a rank's layers one word that captures
 * something is enough, because another stage may grant the others, and of a stage
 * none has to: they are narrowed, and noted. */
gh_status gh_plan_check_scope(const struct gh_plan *plan, gh_error *err)
{
    if (is_stage(plan) || (!is_whole(plan) && grants_any(plan))) {
        return GH_OK;
    }
    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        const bool named = (plan->options.scope & GH_SCOPE(item)) != 0;
        const uint32_t first = named ? first_refusal(plan, item) : UINT32_MAX;

        if (first != UINT32_MAX) {
            return refuse_everywhere(plan, item, first, err);
        }
    }
    return GH_OK;
}
