/*
 * print.c - the plan as a person reads it, and as a program does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

struct sink {
    gh_write_fn *write;
    void *user;
};

static void put(const struct sink *sink, const char *text)
{
    sink->write(sink->user, text, strlen(text));
}

/* A JSON string; the text came from the host and may hold anything. */
static void put_quoted(const struct sink *sink, const char *text)
{
    char escaped[8];

    put(sink, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;

        if (byte < 0x20 || byte == '"' || byte == '\\') {
            snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
            put(sink, escaped);
        } else {
            sink->write(sink->user, c, 1);
        }
    }
    put(sink, "\"");
}

static const char *mode_name(gh_segment_mode mode)
{
    return mode == GH_SEGMENT_GRAPHED ? "graphed" : "eager";
}

static const char *granularity_name(enum gh_granularity granularity)
{
    return granularity == GH_GRANULARITY_PART ? "part" : "layer";
}

static void write_text(const struct gh_plan *plan, const struct sink *sink)
{
    char line[160];

    snprintf(line, sizeof(line), "%u segments, granularity %s\n",
             plan->n_segments, granularity_name(plan->granularity));
    put(sink, line);
    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];

        snprintf(line, sizeof(line), "%5u  chunk %u  %-7s  ", s->index,
                 s->chunk, mode_name(s->mode));
        put(sink, line);
        put(sink, plan->layer_names[s->first_layer]);
        snprintf(line, sizeof(line), " %s", gh_part_name(s->first_part));
        put(sink, line);
        if (s->last_part != s->first_part) {
            snprintf(line, sizeof(line), "..%s", gh_part_name(s->last_part));
            put(sink, line);
        }
        put(sink, ": ");
        put(sink, s->reason);
        put(sink, "\n");
    }
}

static void write_json(const struct gh_plan *plan, const struct sink *sink)
{
    char line[256];

    snprintf(line, sizeof(line), "{\"granularity\":\"%s\",\"segments\":[",
             granularity_name(plan->granularity));
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
        put_quoted(sink, plan->layer_names[s->first_layer]);
        put(sink, ",\"reason\":");
        put_quoted(sink, s->reason);
        put(sink, "}");
    }
    put(sink, "\n]}\n");
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
