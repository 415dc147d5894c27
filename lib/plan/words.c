/*
 * words.c - the words in which a plan is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/plan.h"

#include "plan/sink.h"

#include <stdio.h>
#include <string.h>

const char *gh_item_name(enum gh_scope_item item)
{
    static const char *const names[GH_ITEM_COUNT] = {
        "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba",
    };

    return item < GH_ITEM_COUNT ? names[item] : "?";
}

const char *gh_mode_name(gh_segment_mode mode)
{
    return mode == GH_SEGMENT_GRAPHED ? "graphed" : "eager";
}

const char *gh_granularity_name(enum gh_granularity granularity)
{
    static const char *const names[] = { "part", "layer", "chunk" };

    return names[granularity];
}

void gh_scope_text(uint32_t scope, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        if ((scope & GH_SCOPE(item)) != 0 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     used == 0 ? "" : ",", gh_item_name(item));
        }
    }
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

/* How many bytes of a name to show, at most `most`, in a text of `bytes` bytes
 * of which the rest of the text needs `parts`. */
static int name_bytes(const char *name, size_t bytes, size_t parts, int most)
{
    const int left = bytes > parts ? (int)(bytes - parts) : 0;

    return gh_shown_bytes(name, left < most ? left : most);
}

void gh_plan_extent(const struct gh_plan *plan, const gh_segment *s, char *text,
                    size_t bytes)
{
    const char *first = plan->layers[s->first_layer].name;
    const char *last = plan->layers[s->last_layer].name;
    const char *from = gh_part_name(s->first_part);
    const char *to = gh_part_name(s->last_part);

    if (s->last_layer != s->first_layer) {
        const size_t parts = strlen("  ..  ") + strlen(from) + strlen(to);
        const size_t each = bytes > parts ? (bytes - parts) / 2 : 0;

        snprintf(text, bytes, "%.*s %s..%.*s %s",
                 name_bytes(first, each, 0, 40), first, from,
                 name_bytes(last, each, 0, 40), last, to);
    } else if (s->last_part != s->first_part) {
        snprintf(text, bytes, "%.*s %s..%s",
                 name_bytes(first, bytes,
                            strlen(" ..") + strlen(from) + strlen(to) + 1, 80),
                 first, from, to);
    } else {
        snprintf(text, bytes, "%.*s %s",
                 name_bytes(first, bytes, strlen(" ") + strlen(from) + 1, 80),
                 first, from);
    }
    gh_one_line(text);
}
