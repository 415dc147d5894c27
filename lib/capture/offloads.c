/*
 * offloads.c - see offloads.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/offloads.h"

#include "base/error.h"
#include "capture/capture.h"
#include "capture/replay.h"
#include "capture/services.h"
#include "offload/offload.h"

static struct gh_offload_at at_of(const struct gh_capture *c)
{
    return (struct gh_offload_at){
        .chunk = c->open.chunk,
        .slot = c->open.slot,
        .microbatch = c->open.microbatch,
        .pass = c->open.number,
        .stream = c->open.action == GH_ACTION_RECORD ? c->open.capture_stream
                                                     : c->open.stream,
        .forward_only = (c->open.flags & GH_PASS_FORWARD_ONLY) != 0,
        .paused = c->host.paused != 0,
        .prepares = gh_open_prepares(&c->open),
        .compares = c->open.reason == GH_REASON_CHECK,
    };
}

/* ---- calls of the host --------------------------------------------------------- */

static gh_status check_call(struct gh_capture *c, const char *call,
                            bool forward, gh_error *err)
{
    if (c->offload == NULL) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "%s: the session offloads nothing: name modules in "
                       "GRAPHHOOKS_OFFLOAD, or give gh_session_desc.offload",
                       call);
    }
    if (!c->open.active || c->open.action == GH_ACTION_REPLAYED) {
        return gh_fail(err, GH_ERR_STATE,
                       "%s: %s: call it while the parts of a pass are issued",
                       call,
                       c->open.active ? "the open pass was replayed"
                                      : "no pass is open");
    }
    if ((c->open.direction == GH_FORWARD) != forward) {
        return gh_fail(err, GH_ERR_STATE, "%s: the open pass is a %s", call,
                       gh_direction_names[c->open.direction]);
    }
    if (gh_open_captured(c) == GH_CAPTURING_YES &&
        c->open.action != GH_ACTION_RECORD) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "%s: the host is capturing the pass's stream, and the "
                       "copies would not be part of its graph: leave the "
                       "passes that offload out of that capture",
                       call);
    }
    return GH_OK;
}

/* Takes the result of a recorded call.  After a failure the graph would lack
 * what the host has asked for, so the recording is refused and the pass runs
 * eagerly, where the call may work.  GH_RERUN is no error of the host's: it
 * hears of it at the exit. */
static gh_status recorded(struct gh_capture *c, gh_status status,
                          const gh_error *why, gh_error *err)
{
    if (status == GH_OK) {
        return GH_OK;
    }
    c->open.refused = true;
    c->host.why = *why;
    return status == GH_RERUN ? GH_OK : gh_fail(err, status, "%s", why->text);
}

struct call {
    const char *name;
    bool forward;
    gh_offload_eager_fn *eager;
    gh_offload_recorded_fn *recorded;
};

static gh_status call_in_context(struct gh_capture *c, const struct call *call,
                                 gh_offload_group *group, gh_error *err)
{
    const struct gh_offload_at at = at_of(c);
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status;
    gh_error why;

    if (c->open.action != GH_ACTION_RECORD) {
        status = call->eager(c->offload, &at, group, err);
    } else {
        status = call->recorded(c->offload, &at, group, &c->open.entry->script,
                                &why);
        status = recorded(c, status, &why, err);
    }
    gh_device_leave(c->dev, before);
    return status;
}

static gh_status call_for_group(struct gh_capture *c, const struct call *call,
                                gh_offload_group *group, gh_error *err)
{
    const gh_status status = check_call(c, call->name, call->forward, err);

    return status == GH_OK ? call_in_context(c, call, group, err) : status;
}

gh_status gh_capture_save(struct gh_capture *c, gh_offload_group *group,
                          gh_error *err)
{
    static const struct call call = { "gh_offload_save", true,
                                      gh_offload_save_eager,
                                      gh_offload_save_recorded };

    return call_for_group(c, &call, group, err);
}

gh_status gh_capture_load(struct gh_capture *c, gh_offload_group *group,
                          gh_error *err)
{
    static const struct call call = { "gh_offload_load", false,
                                      gh_offload_load_eager,
                                      gh_offload_load_recorded };

    return call_for_group(c, &call, group, err);
}

/* Tells the host of all loans that have ended.  Allowed in the middle of a
 * recording. */
static void tell_ended(struct gh_capture *c)
{
    void *object;

    while (gh_loans_take(&c->offload->loans, &object)) {
        gh_services_released(c, object);
    }
}

/* A call that ends what those have begun. */
static gh_status call_for_end(struct gh_capture *c, const struct call *call,
                              uint32_t layer, uint32_t module, gh_error *err)
{
    gh_offload_group group = { .layer = layer, .module = module };
    const gh_status status = call_for_group(c, call, &group, err);

    if (c->offload != NULL) {
        tell_ended(c);
    }
    return status;
}

gh_status gh_capture_commit(struct gh_capture *c, uint32_t layer,
                            uint32_t module, gh_error *err)
{
    static const struct call call = { "gh_offload_commit", true,
                                      gh_offload_commit_eager,
                                      gh_offload_commit_recorded };

    return call_for_end(c, &call, layer, module, err);
}

gh_status gh_capture_release(struct gh_capture *c, uint32_t layer,
                             uint32_t module, gh_error *err)
{
    static const struct call call = { "gh_offload_release", false,
                                      gh_offload_release_eager,
                                      gh_offload_release_recorded };

    return call_for_end(c, &call, layer, module, err);
}

gh_status gh_capture_flush(struct gh_capture *c, gh_error *err)
{
    gh_status status =
        c->offload != NULL ? gh_offload_flush(c->offload, err) : GH_OK;

    gh_offloads_tell(c);
    return status;
}

void gh_capture_hold(struct gh_capture *c, bool holds)
{
    c->host.holds = holds;
}

uint64_t gh_capture_profile_steps(const struct gh_capture *c)
{
    return c->offload != NULL ? gh_offload_profile_steps(c->offload) : 0;
}

uint32_t gh_capture_exchanges_due(const struct gh_capture *c)
{
    return c->offload != NULL && gh_offload_asks_ranks(c->offload)
               ? GH_EXCHANGES_TIMED
               : 0;
}

void gh_capture_exchanges_say(struct gh_capture *c, double *ns)
{
    gh_exchanges_say(c->offload, ns);
}

void gh_capture_exchanges_hear(struct gh_capture *c, const double *ns)
{
    gh_exchanges_hear(c->offload, ns);
}

void gh_capture_exchange_begin(struct gh_capture *c, uint32_t cell,
                               void *stream)
{
    if (c->offload != NULL && c->offload->exchanges != NULL) {
        gh_exchange_begin(c->offload, cell, stream);
    }
}

void gh_capture_exchange_end(struct gh_capture *c, void *stream)
{
    if (c->offload == NULL) {
        return;
    }
    if (c->offload->exchanges != NULL) {
        gh_exchange_end(c->offload, stream);
    }
    if (c->offload->options.apart) {
        gh_offload_behind(c->offload, stream);
    }
}

bool gh_capture_flushes_late(const struct gh_capture *c)
{
    return c->offload != NULL && c->offload->options.apart;
}

gh_status gh_capture_declare(struct gh_capture *c, gh_offload_declared *groups,
                             uint32_t n, uint32_t in_flight, gh_error *err)
{
    gh_status status;

    if (c->offload == NULL) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_offload_declare: the session offloads nothing: "
                       "name modules in GRAPHHOOKS_OFFLOAD, or give "
                       "gh_session_desc.offload");
    }
    if (c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_offload_declare: a pass is open: declare between "
                       "passes");
    }
    status = gh_offload_decide_declared(c->offload, groups, n, in_flight, err);
    if (status != GH_OK && status != GH_ERR_NO_MEMORY) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        groups[i].why = gh_offload_why_stays(c->offload, &groups[i]);
    }
    return status;
}

bool gh_capture_count_offload(const struct gh_capture *c,
                              gh_offload_stats *stats)
{
    if (c->offload == NULL) {
        return false;
    }
    gh_offload_count(c->offload, stats);
    return true;
}

/* ---- around passes --------------------------------------------------------------- */

static gh_status issue_queued(struct gh_capture *c, const gh_pass *pass,
                              gh_error *err)
{
    const struct gh_instance *first = c->offload->first_queued;

    if (c->host.holds || (pass->direction == GH_FORWARD &&
                          pass->microbatch == first->microbatch)) {
        return GH_OK;
    }
    return gh_offload_flush(c->offload, err);
}

gh_status gh_offloads_begin(struct gh_capture *c, const gh_pass *pass,
                            gh_error *err)
{
    c->open.not_now = false;
    gh_offloads_tell(c);
    if ((pass->flags & GH_PASS_FORWARD_ONLY) == 0 && c->host.paused == 0) {
        c->offload->trains = true;
    }
    return c->offload->first_queued == NULL ? GH_OK
                                            : issue_queued(c, pass, err);
}

gh_status gh_launch_with_script(struct gh_capture *c, struct gh_entry *entry,
                                void *stream, gh_error *err)
{
    struct gh_offload_at at = at_of(c);
    gh_status status;

    at.stream = stream;
    status = gh_offload_before(c->offload, &entry->script, &at, err);
    if (status != GH_OK) {
        c->open.not_now = status != GH_ERR_DEVICE;
        return status;
    }
    status = gh_launch_graph(c, entry, stream, err);
    if (status != GH_OK) {
        gh_offload_take_back(c->offload, &entry->script);
        return status;
    }
    if (!c->open.repeated) {
        gh_offload_after(c->offload, &entry->script);
    }
    return GH_OK;
}

void gh_offloads_after_check(struct gh_capture *c, struct gh_entry *entry,
                             enum gh_check_begun begun)
{
    if (begun == GH_CHECK_READY) {
        gh_offload_repeat(c->offload, &entry->script, c->open.stream);
    } else if (begun == GH_CHECK_STANDS) {
        gh_offload_after(c->offload, &entry->script);
    }
}

void gh_offloads_cancel(struct gh_capture *c)
{
    if (c->offload != NULL && c->open.action != GH_ACTION_RECORD) {
        gh_offload_cancel(c->offload, c->open.number,
                          c->open.direction == GH_FORWARD);
    } else {
        gh_offloads_drop(c);
    }
}

void gh_offloads_drop(struct gh_capture *c)
{
    if (c->offload != NULL) {
        gh_loans_end_pass(&c->offload->loans, c->open.number);
    }
}

/* ---- the host's own memory ---------------------------------------------- */

void gh_offloads_tell(struct gh_capture *c)
{
    if (c->offload != NULL && (c->offload->loans.leaving.first != NULL ||
                               c->offload->loans.ended.first != NULL)) {
        gh_loans_poll(&c->offload->loans);
        tell_ended(c);
    }
}

void gh_offloads_rest(struct gh_capture *c)
{
    if (c->offload != NULL) {
        gh_offload_rest(c->offload);
        tell_ended(c);
    }
}
