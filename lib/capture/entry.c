/*
 * entry.c - what an entry is called, what it holds, and how it loses that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/private.h"

#include <stdio.h>
#include <stdlib.h>

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry)
{
    const size_t i = (size_t)(entry - c->entries);
    const uint32_t slots = c->options.max_slots;
    const gh_segment *s = &c->plan->segments[i / slots / GH_ROWS];
    struct gh_entry_label label;
    char where[120];

    gh_plan_extent(c->plan, s, where, sizeof(where));
    snprintf(label.text, sizeof(label.text), "%s %s%s, slot %u", where,
             gh_direction_names[i / slots % GH_ROWS / GH_VARIANTS],
             i / slots % GH_VARIANTS == 0 ? "" : " (variant 1)",
             (unsigned)(i % slots));
    return label;
}

/* cuGraphExecDestroy waits for nothing and needs not; a host may give away at
 * once what its graph has in use. */
static void destroy_graph(struct gh_capture *c, struct gh_entry *entry)
{
    const gh_host_services *host = &c->options.host;

    if (entry->object == NULL) {
        gh_device_exec_destroy(c->dev, entry->exec);
        return;
    }
    if (entry->state == GH_ENTRY_READY) {
        gh_streams_quiesce(&c->streams);
    }
    host->destroy(host->user, entry->object);
}

void gh_entry_clear(struct gh_capture *c, struct gh_entry *entry)
{
    const bool unchained = entry->unchained;
    struct gh_device_before before = gh_device_enter(c->dev);

    if (entry->state == GH_ENTRY_READY) {
        c->stats.nodes -= entry->n_nodes;
    }
    destroy_graph(c, entry);
    gh_device_copy_destroy(entry->copy);
    gh_memory_free(&c->memory, entry->buffers, entry->buffer_bytes);
    free(entry->inputs);
    free(entry->outputs);
    gh_device_leave(c->dev, before);
    *entry = (struct gh_entry){ .unchained = unchained };
}

void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text)
{
    gh_say_given_up(c, entry, text);
    gh_entry_clear(c, entry);
    entry->state = GH_ENTRY_EAGER;
    entry->reason = (uint8_t)reason;
}
