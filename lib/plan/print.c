/*
 * print.c - the plan as a person reads it, and as a program does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "plan/sink.h"

#include <stdio.h>
#include <string.h>

static const char *mode_name(gh_segment_mode mode)
{
    return mode == GH_SEGMENT_GRAPHED ? "graphed" : "eager";
}

const char *gh_granularity_name(enum gh_granularity granularity)
{
    static const char *const names[] = { "part", "layer", "chunk" };

    return names[granularity];
}

int gh_shown_bytes(const char *name, int most)
{
    int bytes = (int)strnlen(name, (size_t)most + 1);

    if (bytes <= most) {
        return bytes;
    }
    for (bytes = most; bytes > 0 && (name[bytes] & 0xC0) == 0x80; bytes--) {
    }
    return bytes;
}

void gh_plan_extent(const struct gh_plan *plan, const gh_segment *s, char *text,
                    size_t bytes)
{
    const char *first = plan->layers[s->first_layer].name;
    const char *last = plan->layers[s->last_layer].name;

    if (s->last_layer != s->first_layer) {
        snprintf(text, bytes, "%.*s %s..%.*s %s", gh_shown_bytes(first, 40),
                 first, gh_part_name(s->first_part), gh_shown_bytes(last, 40),
                 last, gh_part_name(s->last_part));
    } else if (s->last_part != s->first_part) {
        snprintf(text, bytes, "%.*s %s..%s", gh_shown_bytes(first, 80), first,
                 gh_part_name(s->first_part), gh_part_name(s->last_part));
    } else {
        snprintf(text, bytes, "%.*s %s", gh_shown_bytes(first, 80), first,
                 gh_part_name(s->first_part));
    }
}

static void put_modules(const struct sink *sink, const char *how,
                        uint32_t modules)
{
    if (modules == 0) {
        return;
    }
    put(sink, how);
    for (uint32_t i = 0; gh_module_names[i] != NULL; i++) {
        if ((modules & 1u << i) != 0) {
            put(sink, " ");
            put(sink, gh_module_names[i]);
        }
    }
}

static void write_offload(const struct gh_plan *plan, const struct sink *sink)
{
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer_plan *layer = &plan->layer_plans[i];

        if (plan->layers[i].offload == 0) {
            continue;
        }
        put(sink, "offload ");
        put(sink, plan->layers[i].name);
        put(sink, ":");
        put_modules(sink, " in the graph", layer->offload_in_graph);
        put_modules(sink, " beside it", layer->offload_eager);
        put_modules(sink, " off", layer->offload_off);
        put(sink, "\n");
    }
}

static void write_text(const struct gh_plan *plan, const struct sink *sink)
{
    char line[512];

    snprintf(line, sizeof(line), "%u segment%s, granularity %s\n",
             plan->n_segments, plan->n_segments == 1 ? "" : "s",
             gh_granularity_name(plan->options.granularity));
    put(sink, line);
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];

        snprintf(line, sizeof(line), "%5u  chunk %u  %-7s  ", s->index,
                 s->chunk, mode_name(s->mode));
        put(sink, line);
        gh_plan_extent(plan, s, line, sizeof(line));
        put(sink, line);
        put(sink, ": ");
        put(sink, s->reason);
        put(sink, "\n");
    }
    gh_traits_write_text(plan, sink);
    write_offload(plan, sink);
    for (enum gh_cause cause = 0; cause < GH_CAUSE_COUNT; cause++) {
        if (gh_plan_note_text(plan, cause, line, sizeof(line))) {
            put(sink, "note: ");
            put(sink, line);
            put(sink, "\n");
        }
    }
}

static void put_json_modules(const struct sink *sink, const char *key,
                             uint32_t modules)
{
    const char *comma = "";

    put(sink, key);
    for (uint32_t i = 0; gh_module_names[i] != NULL; i++) {
        if ((modules & 1u << i) != 0) {
            put(sink, comma);
            put_quoted(sink, gh_module_names[i]);
            comma = ",";
        }
    }
    put(sink, "]");
}

static void write_json_offload(const struct gh_plan *plan,
                               const struct sink *sink)
{
    const char *comma = "";
    char line[48];

    put(sink, "\n],\"offload\":[");
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        const struct gh_layer_plan *layer = &plan->layer_plans[i];

        if (plan->layers[i].offload == 0) {
            continue;
        }
        snprintf(line, sizeof(line), "%s\n{\"index\":%u,\"layer\":", comma, i);
        put(sink, line);
        put_quoted(sink, plan->layers[i].name);
        put_json_modules(sink, ",\"in_graph\":[", layer->offload_in_graph);
        put_json_modules(sink, ",\"beside\":[", layer->offload_eager);
        put_json_modules(sink, ",\"off\":[", layer->offload_off);
        put(sink, "}");
        comma = ",";
    }
}

static void write_json_notes(const struct gh_plan *plan,
                             const struct sink *sink)
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

static void write_json(const struct gh_plan *plan, const struct sink *sink)
{
    char line[256];

    snprintf(line, sizeof(line), "{\"granularity\":\"%s\",\"segments\":[",
             gh_granularity_name(plan->options.granularity));
    put(sink, line);
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];

        snprintf(line, sizeof(line),
                 "%s\n{\"index\":%u,\"chunk\":%u,\"mode\":\"%s\","
                 "\"first_layer\":%u,\"last_layer\":%u,"
                 "\"first_part\":\"%s\",\"last_part\":\"%s\",\"layer\":",
                 i == 0 ? "" : ",", s->index, s->chunk, mode_name(s->mode),
                 s->first_layer, s->last_layer, gh_part_name(s->first_part),
                 gh_part_name(s->last_part));
        put(sink, line);
        put_quoted(sink, plan->layers[s->first_layer].name);
        put(sink, ",\"reason\":");
        put_quoted(sink, s->reason);
        put(sink, "}");
    }
    write_json_offload(plan, sink);
    gh_traits_write_json(plan, sink);
    write_json_notes(plan, sink);
}

void gh_plan_write(const struct gh_plan *plan, gh_format format,
                   gh_write_fn *write, void *user)
{
    const struct sink sink = { write, user };

    if (format == GH_FORMAT_JSON) {
        write_json(plan, &sink);
    } else {
        write_text(plan, &sink);
    }
}
