/*
 * why.c - `graphhooks plan --why LAYER.PART`: one decision in full.
 *
 * The layer's fields that rules look at, what was asked, the rule that
 * decided and, for an eager part, what would have it captured.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan.h"
#include "words.h"
#include "words/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_words(const char *label, const char *const *words,
                        uint32_t bits)
{
    printf("%s", label);
    for (int i = 0; words[i] != NULL; i++) {
        if ((bits & 1u << i) != 0) {
            printf(" %s", words[i]);
        }
    }
    printf("%s\n", bits == 0 ? " none" : "");
}

/* ---- which ------------------------------------------------------------- */

/* By name, or by number where no layer is called so. */
static int find_layer(const struct gh_plan *plan, const char *name,
                      uint32_t *layer)
{
    uint32_t n_found = 0;
    char *end;
    unsigned long number;

    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if (strcmp(plan->layers[i].name, name) == 0) {
            *layer = n_found == 0 ? i : *layer;
            n_found++;
        }
    }
    if (n_found == 1) {
        return 0;
    }
    if (n_found > 1) {
        fprintf(stderr,
                "graphhooks plan: --why: %u layers are called %s; give the "
                "number of one, as in %u\n",
                n_found, name, *layer);
        return 2;
    }
    number = strtoul(name, &end, 10);
    if (name[0] >= '0' && name[0] <= '9' && *end == '\0' &&
        number < plan->n_layers) {
        *layer = (uint32_t)number;
        return 0;
    }
    fprintf(stderr,
            "graphhooks plan: --why: there is no layer %s; give a name, or a "
            "number from 0 to %u\n",
            name, plan->n_layers - 1);
    return 2;
}

static int find_part(const struct gh_plan *plan, uint32_t layer,
                     const char *name, gh_part *part)
{
    const gh_part *parts;
    const uint32_t n_parts = gh_layer_parts(&plan->layers[layer], &parts);
    const char *names[GH_FAMILY_PARTS + 1] = { NULL }, *near;

    for (uint32_t i = 0; i < n_parts; i++) {
        names[i] = gh_part_name(parts[i]);
        if (strcmp(gh_part_name(parts[i]), name) == 0) {
            *part = parts[i];
            return 0;
        }
    }
    near = nearest_word(name, names);
    if (strcmp(name, gh_part_name(GH_PART_EMBEDDING)) == 0 ||
        strcmp(name, gh_part_name(GH_PART_HEAD)) == 0) {
        fprintf(stderr,
                "graphhooks plan: --why: %s has no %s, so it runs outside of "
                "all graphs; name it in the layer's features if the host runs "
                "it with the layer\n",
                plan->layers[layer].name, name);
        return 2;
    }
    fprintf(stderr, "graphhooks plan: --why: %s, a %s layer, has no part %s; ",
            plan->layers[layer].name, gh_kinds[plan->layers[layer].kind].name,
            name);
    if (near != NULL) {
        fprintf(stderr, "did you mean %s?\n", near);
        return 2;
    }
    fprintf(stderr, "it has");
    for (uint32_t i = 0; i < n_parts; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : ",", gh_part_name(parts[i]));
    }
    fprintf(stderr, "\n");
    return 2;
}

static int find(const struct gh_plan *plan, const char *which, uint32_t *layer,
                gh_part *part)
{
    const char *dot = strrchr(which, '.');
    const gh_part *parts;
    char *name;
    int status;

    if (dot == NULL || dot == which) {
        gh_layer_parts(&plan->layers[0], &parts);
        fprintf(stderr,
                "graphhooks plan: --why is %s; give LAYER.PART, as in 0.%s\n",
                which, gh_part_name(parts[0]));
        return 2;
    }
    name = strndup(which, (size_t)(dot - which));
    if (name == NULL) {
        fprintf(stderr, "graphhooks plan: no memory for a name\n");
        return 2;
    }
    status = find_layer(plan, name, layer);
    free(name);
    return status != 0 ? status : find_part(plan, *layer, dot + 1, part);
}

/* ---- why --------------------------------------------------------------- */

/* A layer's part as its place; the layer has it. */
static uint32_t place_of(const struct gh_layer *layer, gh_part part)
{
    const gh_part *parts;
    uint32_t place = 0;

    gh_layer_parts(layer, &parts);
    while (parts[place] != part) {
        place++;
    }
    return place;
}

static void print_work(const struct gh_plan *plan, uint32_t segment)
{
    if (plan->options.delay_wgrad) {
        printf("  wgrad      %s\n", gh_plan_leaves_wgrad(plan, segment)
                                        ? "a pass of its own"
                                        : "none to delay");
    }
    if (gh_plan_groups(plan, segment) != 0) {
        print_words("  groups    ", gh_group_names,
                    gh_plan_groups(plan, segment));
    }
}

static void print_segment(const struct gh_plan *plan, uint32_t layer,
                          gh_part part)
{
    const struct gh_layer *described = &plan->layers[layer];
    const uint32_t place = place_of(described, part);
    const gh_segment *s = plan->segments;
    char extent[256];

    while (
        s->last_layer < layer ||
        (s->last_layer == layer && place_of(described, s->last_part) < place)) {
        s++;
    }
    gh_plan_extent(plan, s, extent, sizeof(extent));
    printf("%s, %s: %s\n", plan->layers[layer].name, gh_part_name(part),
           s->mode == GH_SEGMENT_GRAPHED ? "graphed" : "eager");
    printf("  segment    %u of chunk %u: %s\n", s->index, s->chunk, extent);
    print_work(plan, s->index);
    if ((described->features & GH_FEATURE_MTP) != 0) {
        printf(
            "  begins     a depth of multi-token prediction, whose input the "
            "host makes: no graph reaches over its begin\n");
    }
    printf("  layer      %u, %s", layer, gh_kinds[described->kind].name);
}

/* What the layer's family says that touches the part. */
static void print_family(const struct gh_layer *layer, gh_part part)
{
    const struct gh_traits *traits = layer->traits;
    const uint32_t tensors = gh_layer_tensors(layer, part);
    uint32_t place, i = 0;

    if (traits == NULL) {
        return;
    }
    printf("  family     %s, %s\n", traits->source->name, traits->source->file);
    if (traits->layer.note[0] != '\0') {
        printf("             %s\n", traits->layer.note);
    }
    for (uint32_t t = 0; t < traits->layer.n_tensors; t++) {
        if ((tensors & 1u << t) != 0) {
            printf("  reads      %s, for as long as a graph lives\n",
                   traits->names[t]);
        }
    }
    place = place_of(layer, part);
    while (i < traits->layer.n_nodes &&
           place_of(layer, traits->layer.nodes[i].last) < place) {
        i++;
    }
    if (i < traits->layer.n_nodes) {
        printf("  node       %u, %s, %s..%s\n", i,
               gh_lane_name(traits->layer.nodes[i].lane),
               gh_part_name(traits->layer.nodes[i].first),
               gh_part_name(traits->layer.nodes[i].last));
    }
}

static void print_layer(const struct gh_layer *layer)
{
    if (layer->experts != 0) {
        printf(", %u experts, dispatcher %s", layer->experts,
               gh_dispatcher_names[layer->dispatcher]);
    }
    if (layer->backend != GH_BACKEND_NONE) {
        printf(" by %s", gh_backend_names[layer->backend]);
    }
    printf("\n");
    print_words("  features  ", gh_feature_names, layer->features);
    print_words("  recompute ", gh_module_names, layer->recompute);
    print_words("  offload   ", gh_module_names, layer->offload);
}

static void print_asked(const struct gh_plan_options *o)
{
    if (o->scope == 0) {
        printf("  asked      whole layers");
    } else {
        printf("  asked      scope");
    }
    for (int i = 0; scope_words()[i] != NULL; i++) {
        if ((o->scope & 1u << i) != 0) {
            printf(" %s", scope_words()[i]);
        }
    }
    printf(", granularity %s%s%s\n", gh_granularity_name(o->granularity),
           o->ep_overlap ? ", ep overlap" : "",
           o->delay_wgrad ? ", delayed wgrad" : "");
}

static void print_rule(const struct gh_plan *plan, uint32_t layer, gh_part part)
{
    const struct gh_layer_plan *decided = &plan->layer_plans[layer];
    const enum gh_cause cause = gh_cause_first(decided->causes[part]);
    char why[512], remedy[1024];

    gh_cause_text(cause, &plan->layers[layer], why, sizeof(why));
    printf("  why        %s\n",
           cause == GH_CAUSE_NONE ? decided->reason[part] : why);
    if (gh_plan_remedy(plan, layer, part, remedy, sizeof(remedy))) {
        printf("  remedy     %s\n", remedy);
    }
}

static void print_cause(enum gh_cause cause)
{
    if (cause != GH_CAUSE_NONE) {
        printf("             %s; %s\n", gh_causes[cause].why,
               gh_causes[cause].remedy);
    }
}

static void print_offload(const struct gh_layer_plan *decided)
{
    if (decided->offload_in_graph != 0) {
        print_words("  in graph  ", gh_module_names, decided->offload_in_graph);
    }
    if (decided->offload_eager != 0) {
        print_words("  beside it ", gh_module_names, decided->offload_eager);
    }
    if (decided->offload_off != 0) {
        print_words("  off       ", gh_module_names, decided->offload_off);
    }
    print_cause(decided->offload_cause[0]);
    print_cause(decided->offload_cause[1]);
}

static void print_recompute(const struct gh_layer_plan *decided)
{
    if (decided->recompute_off != 0) {
        print_words("  kept      ", gh_module_names, decided->recompute_off);
    }
    print_cause(decided->recompute_cause);
}

int plan_why(const struct gh_plan *plan, const char *which)
{
    uint32_t layer = 0;
    gh_part part;
    int status = find(plan, which, &layer, &part);

    if (status != 0) {
        return status;
    }
    print_segment(plan, layer, part);
    print_layer(&plan->layers[layer]);
    print_family(&plan->layers[layer], part);
    print_asked(&plan->options);
    print_rule(plan, layer, part);
    print_offload(&plan->layer_plans[layer]);
    print_recompute(&plan->layer_plans[layer]);
    return 0;
}
