/*
 * print_json.c - the plan as a program reads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/sink.h"

#include <stdio.h>

/* The words of the bits, after a key that ends with "[". */
static void put_bits(const struct sink *sink, const char *key,
                     const char *const *words, uint32_t bits)
{
    const char *comma = "";

    put(sink, key);
    for (uint32_t i = 0; words[i] != NULL; i++) {
        if ((bits & 1u << i) != 0) {
            put(sink, comma);
            put_quoted(sink, words[i]);
            comma = ",";
        }
    }
    put(sink, "]");
}

/* ---- segments ------------------------------------------------------------ */

static void put_readers(const struct sink *sink, uint32_t readers)
{
    const char *comma = "";

    put(sink, ",\"readers\":[");
    for (gh_part part = 0; part < GH_PART_COUNT; part++) {
        if ((readers & UINT32_C(1) << part) != 0) {
            put(sink, comma);
            put_quoted(sink, gh_part_name(part));
            comma = ",";
        }
    }
    put(sink, "]");
}

/* Only names the tensors that it reads: they are described where they are
 * written. */
static void put_in(const struct gh_plan *plan, const struct sink *sink,
                   uint32_t segment)
{
    gh_border borders[GH_TENSOR_COUNT];
    const uint32_t n = gh_plan_borders(plan, segment, GH_SIDE_IN, borders);
    char line[80];

    put(sink, ",\"in\":[");
    for (uint32_t i = 0; i < n; i++) {
        snprintf(line, sizeof(line), "%s{\"tensor\":\"%s\",\"segment\":%u}",
                 i == 0 ? "" : ",", borders[i].name, borders[i].segment);
        put(sink, line);
    }
    put(sink, "]");
}

static void put_out(const struct gh_plan *plan, const struct sink *sink,
                    uint32_t segment)
{
    static const char *const elements[] = { "activation", "prob", "mask",
                                            "index" };
    gh_border borders[GH_TENSOR_COUNT];
    const uint32_t n = gh_plan_borders(plan, segment, GH_SIDE_OUT, borders);
    char line[256];

    put(sink, ",\"out\":[");
    for (uint32_t i = 0; i < n; i++) {
        const gh_border *b = &borders[i];

        snprintf(line, sizeof(line),
                 "%s{\"tensor\":\"%s\",\"element\":\"%s\",\"shape\":\"%s\","
                 "\"layer\":%u,\"writer\":\"%s\"",
                 i == 0 ? "" : ",", b->name, elements[b->element], b->shape,
                 b->layer, gh_part_name(b->writer));
        put(sink, line);
        put_readers(sink, b->readers);
        put(sink, "}");
    }
    put(sink, "]");
}

static void put_groups(const struct gh_plan *plan, const struct sink *sink,
                       uint32_t segment)
{
    put_bits(sink, ",\"groups\":[", gh_group_names,
             gh_plan_groups(plan, segment));
}

static void put_passes(const struct gh_plan *plan, const struct sink *sink,
                       uint32_t segment)
{
    const bool wgrad = gh_plan_leaves_wgrad(plan, segment);

    put_bits(sink, ",\"passes\":[", gh_direction_names,
             1u << GH_FORWARD | 1u << GH_BACKWARD |
                 (uint32_t)wgrad << GH_WGRAD);
}

static void put_segment(const struct gh_plan *plan, const struct sink *sink,
                        const gh_segment *s)
{
    char line[256], remedy[1024];

    snprintf(line, sizeof(line),
             "{\"index\":%u,\"chunk\":%u,\"mode\":\"%s\","
             "\"first_layer\":%u,\"last_layer\":%u,"
             "\"first_part\":\"%s\",\"last_part\":\"%s\",\"layer\":",
             s->index, s->chunk, gh_mode_name(s->mode), s->first_layer,
             s->last_layer, gh_part_name(s->first_part),
             gh_part_name(s->last_part));
    put(sink, line);
    put_quoted(sink, plan->layers[s->first_layer].name);
    put(sink, ",\"reason\":");
    put_quoted(sink, s->reason);
    put(sink, ",\"remedy\":");
    if (gh_plan_remedy(plan, s->first_layer, s->first_part, remedy,
                       sizeof(remedy))) {
        put_quoted(sink, remedy);
    } else {
        put(sink, "null");
    }
    put_passes(plan, sink, s->index);
    put_groups(plan, sink, s->index);
    put_in(plan, sink, s->index);
    put_out(plan, sink, s->index);
    put(sink, "}");
}

static void write_segments(const struct gh_plan *plan, const struct sink *sink)
{
    put(sink, "\"segments\":[");
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        put(sink, i == 0 ? "\n" : ",\n");
        put_segment(plan, sink, &plan->segments[i]);
    }
}

/* ---- layers -------------------------------------------------------------- */

static void write_layers(const struct gh_plan *plan, const struct sink *sink)
{
    char line[96];

    put(sink, "\n],\"layers\":[");
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer *layer = &plan->layers[i];

        snprintf(line, sizeof(line),
                 "%s\n{\"index\":%u,\"chunk\":%u,\"kind\":\"%s\",\"name\":",
                 i == 0 ? "" : ",", i, layer->chunk,
                 gh_kinds[layer->kind].name);
        put(sink, line);
        put_quoted(sink, layer->name);
        put(sink, "}");
    }
}

/* What becomes of the modules of a layer that are offloaded or recomputed. */
struct fate {
    uint32_t asked, in_graph, beside, off;
};

static void put_fate(const struct gh_plan *plan, const struct sink *sink,
                     uint32_t i, const struct fate *fate, const char **comma,
                     const char *off)
{
    char line[48];

    if (fate->asked == 0) {
        return;
    }
    snprintf(line, sizeof(line), "%s\n{\"index\":%u,\"layer\":", *comma, i);
    put(sink, line);
    put_quoted(sink, plan->layers[i].name);
    put_bits(sink, ",\"in_graph\":[", gh_module_names, fate->in_graph);
    put_bits(sink, ",\"beside\":[", gh_module_names, fate->beside);
    put_bits(sink, off, gh_module_names, fate->off);
    put(sink, "}");
    *comma = ",";
}

static void write_offload(const struct gh_plan *plan, const struct sink *sink)
{
    const char *comma = "";

    put(sink, "\n],\"offload\":[");
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer_plan *layer = &plan->layer_plans[i];
        const struct fate fate = { plan->layers[i].offload,
                                   layer->offload_in_graph,
                                   layer->offload_eager, layer->offload_off };

        put_fate(plan, sink, i, &fate, &comma, ",\"off\":[");
    }
}

static void write_recompute(const struct gh_plan *plan, const struct sink *sink)
{
    const char *comma = "";

    put(sink, "],\"recompute\":[");
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer_plan *layer = &plan->layer_plans[i];
        const struct fate fate = { plan->layers[i].recompute,
                                   layer->recompute_in_graph,
                                   layer->recompute_eager,
                                   layer->recompute_off };

        put_fate(plan, sink, i, &fate, &comma, ",\"kept\":[");
    }
}

static void write_notes(const struct gh_plan *plan, const struct sink *sink)
{
    const char *comma = "";
    char line[512];

    put(sink, "],\"notes\":[");
    for (enum gh_cause cause = 0; cause < GH_CAUSE_COUNT; cause++) {
        if (gh_plan_note_text(plan, cause, line, sizeof(line))) {
            put(sink, comma);
            put(sink, "\n");
            put_quoted(sink, line);
            comma = ",";
        }
    }
    put(sink, "]}\n");
}

void gh_json_write(const struct gh_plan *plan, const struct sink *sink)
{
    put(sink, "{\"granularity\":");
    put_quoted(sink, gh_granularity_name(plan->options.granularity));
    put(sink, ",");
    write_segments(plan, sink);
    write_layers(plan, sink);
    write_offload(plan, sink);
    write_recompute(plan, sink);
    gh_traits_write_json(plan, sink);
    write_notes(plan, sink);
}
