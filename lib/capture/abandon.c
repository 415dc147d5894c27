/*
 * abandon.c - a recording ends without a graph, and an entry is eager for good.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/abandon.h"

#include "capture/agree.h"
#include "capture/services.h"
#include "messages/messages.h"

void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text)
{
    gh_message_given_up(c, entry, text);
    gh_bank_clear(c->open.bank, entry);
    entry->state = GH_ENTRY_EAGER;
    entry->reason = (uint8_t)reason;
}

/* The capture has failed.  If it was spoilt, by another thread or by a call of
 * the pass, the entry is recorded once more, in a later step: the driver does
 * not tell the two apart, and the other thread may be elsewhere then.  Ranks
 * give it up together. */
void gh_record_fail(struct gh_capture *c, struct gh_entry *entry, bool spoilt,
                    const char *text)
{
    if (!spoilt || entry->spoilt != 0 || gh_ask_is_due(c)) {
        gh_entry_give_up(c, entry, GH_REASON_CAPTURE, text);
        return;
    }
    gh_message_spoilt(c, entry, text);
    entry->spoilt = c->counts.stats.iterations + 1;
    gh_bank_clear(c->open.bank, entry);
}

/* A host that captures by itself has the graph as an object of its own. */
gh_status gh_record_end_capture(struct gh_capture *c, struct gh_entry *entry,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *err)
{
    void *stream = c->open.capture_stream;

    if (gh_services_capture(c)) {
        return gh_services_capture_end(c, stream, &entry->object, n_nodes_p, err);
    }
    return gh_device_capture_end(c->dev, stream, graph_p, n_nodes_p, err);
}

void gh_record_drop(struct gh_capture *c)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    struct gh_entry *entry = c->open.entry;
    const bool spoilt =
        gh_device_capture_is_lost(c->dev, c->open.capture_stream);
    uint64_t n_nodes;
    void *graph = NULL;
    gh_status status;
    gh_error err;

    status = gh_record_end_capture(c, entry, &graph, &n_nodes, &err);
    gh_services_unroute(c, false);
    if (c->open.refused) {
        gh_device_graph_destroy(c->dev, graph);
        gh_entry_give_up(c, entry, GH_REASON_CAPTURE, c->host.why.text);
    } else if (status == GH_OK || gh_services_capture(c)) {
        gh_device_graph_destroy(c->dev, graph);
        gh_bank_clear(c->open.bank, entry);
    } else {
        gh_record_fail(c, entry, spoilt, err.text);
    }
    gh_device_leave(c->dev, before);
}
