/*
 * print_traits.c - what families have said of the layers of a plan.
 *
 * Layers that are described alike are one entry: a model of 61 layers has two
 * or three.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/sink.h"

#include <stdio.h>

/* ---- for people ---------------------------------------------------------- */

static void put_parts(const struct sink *sink, const gh_family_layer *layer,
                      uint32_t bits)
{
    for (uint32_t i = 0; i < layer->n_parts; i++) {
        if ((bits & 1u << layer->parts[i]) != 0) {
            put(sink, " ");
            put(sink, gh_part_name(layer->parts[i]));
        }
    }
}

static void put_reads(const struct sink *sink, const struct gh_traits *traits)
{
    for (uint32_t i = 0; i < traits->layer.n_tensors; i++) {
        put(sink, "  reads ");
        put(sink, traits->names[i]);
        put(sink, " in");
        put_parts(sink, &traits->layer, traits->layer.tensors[i].parts);
        put(sink, "\n");
    }
}

static void put_nodes(const struct sink *sink, const gh_family_layer *layer)
{
    for (uint32_t i = 0; i < layer->n_nodes; i++) {
        const gh_family_node *node = &layer->nodes[i];

        put(sink, i == 0 ? "  nodes " : ", ");
        put(sink, gh_lane_name(node->lane));
        put(sink, " ");
        put(sink, gh_part_name(node->first));
        if (node->last != node->first) {
            put(sink, "..");
            put(sink, gh_part_name(node->last));
        }
    }
    if (layer->n_nodes > 0) {
        put(sink, "\n");
    }
}

static void put_one(const struct gh_plan *plan, const struct sink *sink,
                    const struct gh_traits *traits)
{
    const gh_family_layer *layer = &traits->layer;
    char name[160], more[48] = "";

    snprintf(name, sizeof(name), "%s", plan->layers[traits->first].name);
    gh_one_line(name);
    if (traits->n_layers > 1) {
        snprintf(more, sizeof(more), " (and %u more)", traits->n_layers - 1);
    }
    put(sink, "family ");
    put(sink, traits->source->name);
    put(sink, ": ");
    put(sink, name);
    put(sink, more);
    put(sink, ":");
    put_parts(sink, layer, UINT32_MAX);
    put(sink, "\n");
    if (layer->note[0] != '\0') {
        put(sink, "  ");
        put(sink, layer->note);
        put(sink, "\n");
    }
    if (layer->why_not[0] != '\0') {
        put(sink, "  eager");
        put_parts(sink, layer, ~layer->capturable);
        put(sink, ": ");
        put(sink, layer->why_not);
        put(sink, "\n");
    }
    put_reads(sink, traits);
    put_nodes(sink, layer);
}

void gh_traits_write_text(const struct gh_plan *plan, const struct sink *sink)
{
    for (uint32_t i = 0; i < plan->traits.n_traits; i++) {
        put_one(plan, sink, plan->traits.traits[i]);
    }
}

/* ---- for programs -------------------------------------------------------- */

static void put_json_parts(const struct sink *sink, const char *key,
                           const gh_family_layer *layer, uint32_t bits)
{
    const char *comma = "";

    put(sink, key);
    put(sink, "[");
    for (uint32_t i = 0; i < layer->n_parts; i++) {
        if ((bits & 1u << layer->parts[i]) != 0) {
            put(sink, comma);
            put_quoted(sink, gh_part_name(layer->parts[i]));
            comma = ",";
        }
    }
    put(sink, "]");
}

static void put_json_layers(const struct gh_plan *plan, const struct sink *sink,
                            const struct gh_traits *traits)
{
    uint32_t left = traits->n_layers;
    char number[24];

    put(sink, ",\"layers\":[");
    for (uint32_t i = traits->first; left > 0; i++) {
        if (plan->layers[i].traits == traits) {
            left--;
            snprintf(number, sizeof(number), "%u%s", i, left > 0 ? "," : "");
            put(sink, number);
        }
    }
    put(sink, "]");
}

static void put_json_tensors(const struct sink *sink,
                             const struct gh_traits *traits)
{
    put(sink, ",\"tensors\":[");
    for (uint32_t i = 0; i < traits->layer.n_tensors; i++) {
        put(sink, i == 0 ? "{\"name\":" : ",{\"name\":");
        put_quoted(sink, traits->names[i]);
        put_json_parts(sink, ",\"parts\":", &traits->layer,
                       traits->layer.tensors[i].parts);
        put(sink, "}");
    }
    put(sink, "]");
}

static void put_json_nodes(const struct sink *sink,
                           const gh_family_layer *layer)
{
    char line[128];

    put(sink, ",\"nodes\":[");
    for (uint32_t i = 0; i < layer->n_nodes; i++) {
        const gh_family_node *node = &layer->nodes[i];

        snprintf(line, sizeof(line),
                 "%s{\"lane\":\"%s\",\"first\":\"%s\",\"last\":\"%s\"}",
                 i == 0 ? "" : ",", gh_lane_name(node->lane),
                 gh_part_name(node->first), gh_part_name(node->last));
        put(sink, line);
    }
    put(sink, "]");
}

void gh_traits_write_json(const struct gh_plan *plan, const struct sink *sink)
{
    put(sink, "],\"families\":[");
    for (uint32_t i = 0; i < plan->traits.n_traits; i++) {
        const struct gh_traits *traits = plan->traits.traits[i];

        put(sink, i == 0 ? "\n{\"family\":" : ",\n{\"family\":");
        put_quoted(sink, traits->source->name);
        put(sink, ",\"file\":");
        put_quoted(sink, traits->source->file);
        put_json_layers(plan, sink, traits);
        put_json_parts(sink, ",\"parts\":", &traits->layer, UINT32_MAX);
        put_json_parts(sink, ",\"capturable\":", &traits->layer,
                       traits->layer.capturable);
        put(sink, ",\"why_not\":");
        put_quoted(sink, traits->layer.why_not);
        put(sink, ",\"note\":");
        put_quoted(sink, traits->layer.note);
        put_json_tensors(sink, traits);
        put_json_nodes(sink, &traits->layer);
        put(sink, "}");
    }
}
