/*
 * print_text.c - the plan as a person reads it.
 *
 * A large model is a few layers, many times over.  A run of layers whose
 * segments are alike is shown once, as "layer 3..60 (58 alike)".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/sink.h"

#include <stdio.h>
#include <string.h>

/* ---- what is alike ------------------------------------------------------- */

/* The bytes of a name without the number that it ends with. */
static size_t stem_bytes(const char *name)
{
    size_t bytes = strlen(name);

    while (bytes > 0 && name[bytes - 1] >= '0' && name[bytes - 1] <= '9') {
        bytes--;
    }
    return bytes;
}

/* Whether two names differ in their number alone.  Other layers are shown by
 * themselves, because a reader looks for them by name. */
static bool named_alike(const struct gh_plan *plan, uint32_t a, uint32_t b)
{
    const char *one = plan->layers[a].name, *other = plan->layers[b].name;
    const size_t bytes = stem_bytes(one);

    return stem_bytes(other) == bytes && memcmp(one, other, bytes) == 0 &&
           (one[bytes] == '\0') == (other[bytes] == '\0');
}

/* Whether segment `b` is as `a`, but `further` layers later. */
static bool is_alike(const struct gh_plan *plan, const gh_segment *a,
                     const gh_segment *b, uint32_t further)
{
    return b->chunk == a->chunk &&
           b->first_layer == a->first_layer + further &&
           b->last_layer == a->last_layer + further &&
           b->first_part == a->first_part && b->last_part == a->last_part &&
           gh_plan_same_reason(plan, a, b) &&
           named_alike(plan, a->first_layer, b->first_layer) &&
           named_alike(plan, a->last_layer, b->last_layer);
}

static bool repeats(const struct gh_plan *plan, const gh_segment *s,
                    uint32_t period, uint32_t further)
{
    for (uint32_t k = 0; k < period; k++) {
        if (!is_alike(plan, &s[k], &s[further * period + k], further)) {
            return false;
        }
    }
    return true;
}

/* How many times the pattern of segments that begins at `i` comes in a row,
 * each time one layer later.  *period is the number of segments in it. */
static uint32_t run_at(const struct gh_plan *plan, uint32_t i, uint32_t *period)
{
    const gh_segment *s = &plan->segments[i];
    const uint32_t left = plan->n_segments - i;
    uint32_t n = 1;

    *period = 1;
    while (*period < left && s[*period].first_layer == s->first_layer) {
        ++*period;
    }
    while (n < left / *period && repeats(plan, s, *period, n)) {
        n++;
    }
    *period = n == 1 ? 1 : *period;
    return n;
}

static bool offloads_alike(const struct gh_plan *plan, uint32_t a, uint32_t b)
{
    const struct gh_layer_plan *one = &plan->layer_plans[a];
    const struct gh_layer_plan *other = &plan->layer_plans[b];

    return one->offload_in_graph == other->offload_in_graph &&
           one->offload_eager == other->offload_eager &&
           one->offload_off == other->offload_off && named_alike(plan, a, b);
}

/* ---- segments ------------------------------------------------------------ */

/* "layer 3..60 (58 alike)" */
static void layers_text(const struct gh_plan *plan, uint32_t first, uint32_t n,
                        char *text, size_t bytes)
{
    const char *name = plan->layers[first].name;
    const char *last = plan->layers[first + n - 1].name;
    const char *number = last + stem_bytes(last);
    int used = snprintf(text, bytes, "%.*s", gh_shown_bytes(name, 80), name);

    if (n > 1) {
        snprintf(text + used, bytes - (size_t)used, "%s%.40s (%u alike)",
                 *number != '\0' ? ".." : "", number, n);
    }
    gh_one_line(text);
}

static void put_one(const struct sink *sink, const char *number,
                    const gh_segment *s, const char *extent)
{
    char line[80];

    snprintf(line, sizeof(line), "%8s  chunk %u  %-7s  ", number, s->chunk,
             gh_mode_name(s->mode));
    put(sink, line);
    put(sink, extent);
    put(sink, ": ");
    put(sink, s->reason);
    put(sink, "\n");
}

static void put_segment(const struct gh_plan *plan, const struct sink *sink,
                        const gh_segment *s)
{
    char number[16], extent[256];

    snprintf(number, sizeof(number), "%u", s->index);
    gh_plan_extent(plan, s, extent, sizeof(extent));
    put_one(sink, number, s, extent);
}

/* Writes the numbers of a segment that comes `n` times: "0..23", "3,5..117". */
static void numbers_text(const gh_segment *s, uint32_t period, uint32_t n,
                         char *text, size_t bytes)
{
    const uint32_t next = s->index + period;
    const uint32_t last = s->index + (n - 1) * period;

    if (period == 1) {
        snprintf(text, bytes, "%u..%u", s->index, last);
    } else if (n == 2) {
        snprintf(text, bytes, "%u,%u", s->index, last);
    } else {
        snprintf(text, bytes, "%u,%u..%u", s->index, next, last);
    }
}

/* Writes one segment of a run, once for all `n` times. */
static void put_run(const struct gh_plan *plan, const struct sink *sink,
                    const gh_segment *s, uint32_t period, uint32_t n)
{
    char numbers[48], layers[256], extent[320];

    numbers_text(s, period, n, numbers, sizeof(numbers));
    layers_text(plan, s->first_layer, n, layers, sizeof(layers));
    if (s->last_layer != s->first_layer || s->last_part != s->first_part) {
        snprintf(extent, sizeof(extent), "%s %s..%s%s", layers,
                 gh_part_name(s->first_part), gh_part_name(s->last_part),
                 s->last_layer != s->first_layer ? " of the next" : "");
    } else {
        snprintf(extent, sizeof(extent), "%s %s", layers,
                 gh_part_name(s->first_part));
    }
    put_one(sink, numbers, s, extent);
}

static void write_segments(const struct gh_plan *plan, bool all,
                           const struct sink *sink)
{
    uint32_t period = 1, n = 1;

    for (uint32_t i = 0; i < plan->n_segments; i += period * n) {
        if (!all) {
            n = run_at(plan, i, &period);
        }
        for (uint32_t k = 0; k < period; k++) {
            if (n == 1) {
                put_segment(plan, sink, &plan->segments[i + k]);
            } else {
                put_run(plan, sink, &plan->segments[i + k], period, n);
            }
        }
    }
}

/* ---- the rest ------------------------------------------------------------ */

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

static void write_offload(const struct gh_plan *plan, bool all,
                          const struct sink *sink)
{
    uint32_t n;

    for (uint32_t i = 0; i < plan->n_layers; i += n) {
        const struct gh_layer_plan *layer = &plan->layer_plans[i];
        char layers[256];

        n = 1;
        while (!all && i + n < plan->n_layers &&
               offloads_alike(plan, i, i + n)) {
            n++;
        }
        if (plan->layers[i].offload == 0) {
            continue;
        }
        layers_text(plan, i, n, layers, sizeof(layers));
        put(sink, "offload ");
        put(sink, layers);
        put(sink, ":");
        put_modules(sink, " in the graph", layer->offload_in_graph);
        put_modules(sink, " beside it", layer->offload_eager);
        put_modules(sink, " off", layer->offload_off);
        put(sink, "\n");
    }
}

static void write_notes(const struct gh_plan *plan, const struct sink *sink)
{
    char line[512];

    for (enum gh_cause cause = 0; cause < GH_CAUSE_COUNT; cause++) {
        if (gh_plan_note_text(plan, cause, line, sizeof(line))) {
            put(sink, "note: ");
            put(sink, line);
            put(sink, "\n");
        }
    }
}

void gh_text_write(const struct gh_plan *plan, bool all,
                   const struct sink *sink)
{
    char line[64];

    snprintf(line, sizeof(line), "%u segment%s, granularity %s\n",
             plan->n_segments, plan->n_segments == 1 ? "" : "s",
             gh_granularity_name(plan->options.granularity));
    put(sink, line);
    write_notes(plan, sink);
    write_segments(plan, all, sink);
    gh_traits_write_text(plan, sink);
    write_offload(plan, all, sink);
}
