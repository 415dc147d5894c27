/*
 * record.c - a pass becomes an entry with a graph, or stays as it was.
 *
 * Recording is a transaction.  Until gh_record_end() has launched the graph
 * nothing of the pass has executed but the copy into the entry's own
 * buffers, so on any failure the host can run the same pass again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/record.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/agree.h"
#include "capture/buffers.h"
#include "capture/check.h"
#include "capture/replay.h"
#include "capture/services.h"
#include "messages/messages.h"

#include <stdio.h>

/*
 * The legacy stream cannot be captured.  Nothing executes during a capture,
 * so one on a stream of the library's own needs no fork and no join: the
 * graph is launched on the host's stream all the same.
 *
 * The stream is a blocking one: work that the host leaves on the legacy
 * stream would be missing from the graph, so the driver refuses it.
 */
static gh_status choose_stream(struct gh_capture *c, void *stream,
                               gh_error *err)
{
    gh_status status = GH_OK;

    c->open.capture_stream = stream;
    if (gh_device_is_legacy(stream)) {
        if (c->lib_stream == NULL) {
            status = gh_device_stream_create(c->dev, !c->options.legacy_threads,
                                             &c->lib_stream, err);
        }
        c->open.capture_stream = c->lib_stream;
    }
    return status;
}

static gh_status begin_capture(struct gh_capture *c, gh_error *err)
{
    if (gh_services_capture(c)) {
        return gh_services_capture_begin(c, c->open.capture_stream, err);
    }
    return gh_device_capture_begin(c->dev, c->open.capture_stream, err);
}

static gh_status begin(struct gh_capture *c, const gh_pass *pass,
                       struct gh_entry *entry, gh_reason *reason_p,
                       gh_error *err)
{
    gh_status status;

    status = choose_stream(c, pass->stream, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_services_before_recording(c, err);
    if (status != GH_OK) {
        *reason_p = GH_REASON_CAPTURE;
        return status;
    }
    status = gh_buffers_keep_inputs(c, entry, pass, err);
    if (status != GH_OK) {
        return status;
    }
    gh_replay_fits(entry, pass); /* true: it is made for them */
    if (!gh_open_prepares(&c->open)) {
        status = gh_replay_copy_inputs(c, entry, pass->stream, err);
        if (status != GH_OK) {
            return status;
        }
    }
    status = gh_services_route(c, err);
    if (status != GH_OK) {
        return status;
    }
    status = begin_capture(c, err);
    if (status != GH_OK) {
        gh_services_unroute(c, false);
        if (gh_services_capture(c)) {
            *reason_p = GH_REASON_CAPTURE;
        }
    }
    return status;
}

bool gh_record_begin(struct gh_capture *c, const gh_pass *pass,
                     struct gh_entry *entry)
{
    uint64_t start = gh_now_ns();
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_reason reason = GH_REASON_DEVICE;
    gh_status status;
    gh_error err;

    status = begin(c, pass, entry, &reason, &err);
    if (status != GH_OK) {
        gh_entry_give_up(c, entry, reason, err.text);
    }
    gh_device_leave(c->dev, before);
    c->counts.stats.record_ns += gh_now_ns() - start;
    return status == GH_OK;
}

static gh_status make_ready(struct gh_capture *c, const gh_pass *pass,
                            struct gh_entry *entry, void *graph, gh_error *err)
{
    gh_status status = GH_OK;

    if (entry->object == NULL) {
        status = gh_device_instantiate(c->dev, graph, pass->stream,
                                       &entry->exec, err);
        gh_device_graph_destroy(c->dev, graph);
    }
    if (status == GH_OK) {
        status = gh_buffers_keep_outputs(entry, pass, err);
    }
    return status;
}

/* Whether the first launch is to be compared.  It then waits until the pass is
 * entered again, and is compared with what the host issues. */
static bool is_compared_first(const struct gh_capture *c,
                              const struct gh_entry *entry)
{
    return c->options.check == GH_CHECKS_BITS && entry->object == NULL &&
           !gh_open_prepares(&c->open) && gh_check_has_results(entry);
}

/* Launches the graph at once, unless it is only prepared, or compared first. */
static gh_status launch_first(struct gh_capture *c, const gh_pass *pass,
                              struct gh_entry *entry, gh_error *err)
{
    gh_status status;

    if (gh_open_prepares(&c->open) || is_compared_first(c, entry)) {
        return GH_OK;
    }
    status = gh_launch(c, entry, pass->stream, err);
    if (status == GH_OK) {
        entry->ran = c->open.number;
        c->open.bank->replays++;
    }
    return status;
}

/* Ends the capture and makes its graph ready to be launched.  If there is no
 * graph, the entry is given up, or recorded once more: GH_RERUN. */
static gh_status finish(struct gh_capture *c, const gh_pass *pass,
                        struct gh_entry *entry, uint64_t *n_nodes_p)
{
    void *graph = NULL;
    gh_status status;
    gh_error err;
    bool spoilt;

    spoilt = gh_device_capture_is_lost(c->dev, c->open.capture_stream);
    status = gh_record_end_capture(c, entry, &graph, n_nodes_p, &err);
    if (status != GH_OK) {
        gh_services_unroute(c, false);
        gh_record_fail(c, entry, spoilt, err.text);
        return GH_RERUN;
    }

    if (c->open.refused) {
        gh_services_unroute(c, false);
        gh_device_graph_destroy(c->dev, graph);
        gh_entry_give_up(c, entry, GH_REASON_CAPTURE, c->host.why.text);
        return GH_RERUN;
    }

    /* The pass has issued its work elsewhere, where it has run already: no
     * rerun. */
    if (*n_nodes_p == 0) {
        gh_services_unroute(c, false);
        gh_device_graph_destroy(c->dev, graph);
        gh_entry_give_up(c, entry, GH_REASON_EMPTY,
                         "no work was issued on gh_decision.stream");
        return GH_OK;
    }

    status = make_ready(c, pass, entry, graph, &err);
    if (status != GH_OK) {
        gh_services_unroute(c, false);
        gh_entry_give_up(c, entry, GH_REASON_DEVICE, err.text);
        return GH_RERUN;
    }
    return GH_OK;
}

/* Launches the graph for the first time, and makes the entry ready. */
static gh_status begin_life(struct gh_capture *c, const gh_pass *pass,
                            struct gh_entry *entry, uint64_t n_nodes)
{
    gh_error err;
    gh_status status = launch_first(c, pass, entry, &err);
    const bool not_now = status != GH_OK && c->open.not_now;

    gh_services_unroute(c, status == GH_OK || not_now);
    if (status != GH_OK && !not_now) {
        gh_entry_give_up(c, entry, GH_REASON_DEVICE, err.text);
        return GH_RERUN;
    }

    if (n_nodes != GH_NODES_UNKNOWN) {
        entry->n_nodes = (uint32_t)n_nodes;
        c->banks.n_nodes += n_nodes;
    }
    entry->flags = pass->flags;
    entry->state = GH_ENTRY_READY;
    entry->spoilt = entry->dropped = 0;
    entry->drops = 0;
    c->open.bank->n_graphs++;
    c->open.bank->recordings++;
    return not_now || is_compared_first(c, entry) ? GH_RERUN : GH_OK;
}

/* Asks the other ranks first.  If all have the graph but this rank cannot
 * launch its own, it tells them that it leaves the pass. */
static gh_status launch_with_others(struct gh_capture *c, const gh_pass *pass,
                                    struct gh_entry *entry, uint64_t n_nodes,
                                    gh_error *err)
{
    gh_status status = gh_agree_on_recording(c, err), left;

    if (status != GH_OK) {
        gh_services_unroute(c, false);
        return status;
    }
    status = begin_life(c, pass, entry, n_nodes);
    if (status == GH_OK || (entry->state == GH_ENTRY_READY &&
                            !c->open.not_now)) {
        return status;
    }
    c->open.reason = c->open.not_now ? GH_REASON_INPUT : GH_REASON_DEVICE;
    left = gh_agree_to_leave(c, err);
    return left != GH_OK ? left : status;
}

static gh_status end(struct gh_capture *c, const gh_pass *pass,
                     struct gh_entry *entry, gh_error *err)
{
    uint64_t n_nodes = 0;
    gh_status status = finish(c, pass, entry, &n_nodes);

    if (status == GH_RERUN || entry->state == GH_ENTRY_EAGER) {
        if (gh_ask_is_due(c) && gh_agree_on_recording(c, err) != GH_OK) {
            return GH_ERR_RANKS;
        }
        return status;
    }
    return gh_ask_is_due(c)
               ? launch_with_others(c, pass, entry, n_nodes, err)
               : begin_life(c, pass, entry, n_nodes);
}

static void log_recorded(const struct gh_capture *c,
                         const struct gh_entry *entry)
{
    char nodes[32] = "nodes not counted";

    if (entry->n_nodes != 0) {
        snprintf(nodes, sizeof(nodes), "%u nodes", entry->n_nodes);
    }
    gh_log_line(c->options.log, GH_LOG_DEBUG, "recorded %s, %s",
                gh_entry_describe(c, entry).text, nodes);
}

gh_status gh_record_end(struct gh_capture *c, const gh_pass *pass,
                        gh_error *err)
{
    struct gh_entry *entry = c->open.entry;
    uint64_t start = gh_now_ns();
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status;

    status = end(c, pass, entry, err);
    gh_device_leave(c->dev, before);
    c->counts.stats.record_ns += gh_now_ns() - start;
    if (status == GH_RERUN) {
        c->counts.stats.reruns++;
        gh_fail(err, GH_RERUN, "%s: %s: run it again",
                gh_entry_describe(c, entry).text,
                entry->state != GH_ENTRY_READY ? "recording failed"
                : c->open.not_now
                    ? "recorded, and this time what it offloads is elsewhere"
                    : "recorded, and GRAPHHOOKS_CHECK compares it");
    }
    if (c->options.log->level >= GH_LOG_DEBUG &&
        entry->state == GH_ENTRY_READY) {
        log_recorded(c, entry);
    }
    return status;
}

