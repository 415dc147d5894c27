/*
 * remedy.c - what to change so that an eager part is captured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* The scope with the words added that name the part. */
static uint32_t scope_with(uint32_t scope, gh_part part)
{
    const uint32_t partial =
        GH_SCOPE(GH_ITEM_MOE_ROUTER) | GH_SCOPE(GH_ITEM_MOE_PREPROCESS);

    switch (part) {
    case GH_PART_ATTN:
        return scope | GH_SCOPE(GH_ITEM_ATTN);
    case GH_PART_MLP:
        return scope | GH_SCOPE(GH_ITEM_MLP);
    case GH_PART_MAMBA:
        return scope | GH_SCOPE(GH_ITEM_MAMBA);
    case GH_PART_MOE_ROUTER:
        return scope | GH_SCOPE(GH_ITEM_MOE_ROUTER);
    case GH_PART_MOE_PREPROCESS:
        return scope | partial;
    default:
        return (scope & ~partial) | GH_SCOPE(GH_ITEM_MOE);
    }
}

/* Writes what naming the part would lead to, for a part that is not named. */
static void name_it(const struct gh_plan *plan, uint32_t layer, gh_part part,
                    char *text, size_t bytes)
{
    const struct gh_layer *of = &plan->layers[layer];
    struct gh_plan_options options = plan->options;
    char scope[64], why[512], remedies[256];
    struct gh_layer_plan would;

    options.scope = scope_with(options.scope, gh_layer_beside(of, part));
    gh_scope_text(options.scope, scope, sizeof(scope));
    gh_rules_layer(of, &options, GH_BEFORE_EAGER, &would);
    if (would.graphed[part]) {
        snprintf(text, bytes, "scope %s has it captured", scope);
        return;
    }
    gh_cause_text(gh_cause_first(would.causes[part]), of, why, sizeof(why));
    gh_cause_remedies(would.causes[part], remedies, sizeof(remedies));
    snprintf(text, bytes, "scope %s would not do alone: %s; %s", scope, why,
             remedies);
}

bool gh_plan_remedy(const struct gh_plan *plan, uint32_t layer, gh_part part,
                    char *text, size_t bytes)
{
    const struct gh_layer_plan *decided = &plan->layer_plans[layer];
    const uint32_t causes = decided->causes[part];

    if (decided->graphed[part]) {
        return false;
    }
    if (causes == 0) {
        name_it(plan, layer, part, text, bytes);
    } else if (causes == decided->refused[GH_ITEM_MOE]) {
        gh_item_remedy(decided, GH_ITEM_MOE, part, text, bytes);
    } else {
        gh_cause_remedies(causes, text, bytes);
    }
    return true;
}
