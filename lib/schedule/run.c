/*
 * run.c - one run: wait, call the host, record, for every node in turn.
 *
 * A ready pairing allocates nothing and asks for nothing.  A node that fails
 * ends the run, and the streams are joined all the same, so that what the host
 * issues next on its compute stream follows what was issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "base/error.h"
#include "capture/capture.h"
#include "device/device.h"
#include "device/spans.h"
#include "plan/kinds.h"
#include "ranks/collect.h"

/* ---- streams ------------------------------------------------------------- */

struct run {
    struct gh_schedule *s;
    struct gh_pairing *p;
    const gh_overlap_pair *pair;
    void *streams[2]; /* by gh_lane */
    bool timed, traced;
};

static gh_status know(struct gh_schedule *s, gh_lane lane, void *stream,
                      gh_error *err)
{
    static const char *const names[] = { "gh_overlap_pair.compute",
                                         "gh_overlap_pair.comm" };
    gh_status status;

    if (s->is_known[lane] && s->known[lane] == stream) {
        return GH_OK;
    }
    status = gh_device_check_stream(s->dev, names[lane], stream, err);
    if (status == GH_OK) {
        s->known[lane] = stream;
        s->is_known[lane] = true;
    }
    return status;
}

static gh_status take_streams(struct run *r, gh_error *err)
{
    struct gh_schedule *s = r->s;
    gh_status status = GH_OK;

    r->streams[GH_LANE_COMPUTE] = r->streams[GH_LANE_COMM] = r->pair->compute;
    if (s->dev == NULL || r->p->order == GH_OVERLAP_OFF) {
        return GH_OK;
    }
    /* The last that is made: a first run that failed leaves some of them. */
    if (s->marks[GH_MARKS - 1] == NULL ||
        (r->pair->comm == NULL && s->lib_comm_stream == NULL)) {
        status = gh_schedule_make_objects(s, r->pair->comm == NULL, err);
    }
    if (status == GH_OK) {
        status = know(s, GH_LANE_COMPUTE, r->pair->compute, err);
    }
    if (status == GH_OK && r->pair->comm != NULL) {
        status = know(s, GH_LANE_COMM, r->pair->comm, err);
    }
    r->streams[GH_LANE_COMM] =
        r->pair->comm != NULL ? r->pair->comm : s->lib_comm_stream;
    return status;
}

static gh_status record(const struct run *r, enum gh_mark mark, gh_lane lane,
                        gh_error *err)
{
    return gh_device_event_record(r->s->dev, r->s->marks[mark],
                                  r->streams[lane], err);
}

static gh_status wait_for(const struct run *r, enum gh_mark mark, gh_lane lane,
                          gh_error *err)
{
    r->s->stats.waits++;
    return gh_device_event_wait(r->s->dev, r->streams[lane], r->s->marks[mark],
                                err);
}

/* ---- nodes --------------------------------------------------------------- */

static gh_overlap_node node_of(const struct run *r, const struct gh_step *step)
{
    const struct gh_task *task = &r->p->tasks.all[step->task];
    const bool forward = task->direction == GH_FORWARD;

    return (gh_overlap_node){
        .struct_size = sizeof(gh_overlap_node),
        .flags = step->flags,
        .direction = task->direction,
        .chunk = forward ? r->pair->forward_chunk : r->pair->backward_chunk,
        .microbatch = forward ? r->pair->forward_microbatch
                              : r->pair->backward_microbatch,
        .layer = task->layer,
        .node = task->node,
        .lane = task->lane,
        .first_part = task->first_part,
        .last_part = task->last_part,
        .first_segment = task->first_segment,
        .n_segments = task->n_segments,
        .stream = r->streams[step->lane],
        .n_release = step->n_release,
        .release = &r->p->walk.releases[step->release],
    };
}

/* What a callback must not leave behind. */
static gh_status check_answer(const struct run *r, const gh_overlap_node *node,
                              gh_status answer, gh_error *err)
{
    const bool open = gh_capture_is_open(r->s->capture);
    const char *name = r->s->plan->layers[node->layer].name;

    if (answer < 0) {
        return answer;
    }
    if (answer != GH_OK || open) {
        return gh_fail(err, answer != GH_OK ? GH_ERR_INVALID : GH_ERR_STATE,
                       "gh_overlap_pair.run_node: %s of %.*s, %s.., microbatch "
                       "%u: it %s: %s",
                       gh_direction_names[node->direction],
                       gh_shown_bytes(name, 40), name,
                       gh_part_name(node->first_part), node->microbatch,
                       answer != GH_OK ? "returned a status above GH_OK"
                                       : "returned GH_OK with a pass open",
                       answer != GH_OK
                           ? "enter a pass again while its exit is GH_RERUN"
                           : "call gh_layer_exit or gh_layer_cancel first");
    }
    return GH_OK;
}

static gh_status issue(const struct run *r, const struct gh_step *step,
                       gh_error *err)
{
    const gh_overlap_node node = node_of(r, step);
    gh_error why = { "" };
    gh_status status;

    status = r->pair->run_node(r->pair->user, &node, &why);
    why.text[sizeof(why.text) - 1] = '\0';
    r->s->stats.nodes++;
    if (status < 0) {
        return gh_fail(err, status, "%s",
                       why.text[0] != '\0'
                           ? why.text
                           : "gh_overlap_pair.run_node failed and does not "
                             "say why: let it fill in its gh_error");
    }
    return check_answer(r, &node, status, err);
}

/* Best effort: a node without its times is one that was not measured. */
static void tick(const struct run *r, const struct gh_step *step, int end)
{
    if (r->timed) {
        gh_device_event_record(r->s->dev,
                               r->p->timers[2 * step->task + (uint32_t)end],
                               r->streams[step->lane], NULL);
    }
}

/* Around a node, if there is a trace. */
static struct gh_span *trace(const struct run *r, const struct gh_step *step)
{
    const struct gh_task *task = &r->p->tasks.all[step->task];
    const bool forward = task->direction == GH_FORWARD;
    const struct gh_span_what what = {
        .work = GH_WORK_NODE,
        .direction = task->direction,
        .layer = task->layer,
        .node = task->node,
        .lane = step->lane,
        .order = r->p->order,
        .first_part = task->first_part,
        .last_part = task->last_part,
        .microbatch = forward ? r->pair->forward_microbatch
                              : r->pair->backward_microbatch,
        .slot = GH_SLOT_NONE,
    };

    return gh_capture_node_begin(r->s->capture, &what, r->streams[step->lane]);
}

/* An exchange is timed also where offload asks what copies cost it. */
static gh_status issue_timed(const struct run *r, const struct gh_step *step,
                             gh_error *err)
{
    const struct gh_task *task = &r->p->tasks.all[step->task];
    void *stream = r->streams[step->lane];
    struct gh_span *span;
    gh_status status;

    tick(r, step, 0);
    span = r->traced ? trace(r, step) : NULL;
    if (task->lane == GH_LANE_COMM) {
        gh_capture_exchange_begin(r->s->capture, task->cell, stream);
    }
    status = issue(r, step, err);
    if (task->lane == GH_LANE_COMM && status == GH_OK) {
        gh_capture_exchange_end(r->s->capture, stream);
    }
    gh_capture_node_end(r->s->capture, span);
    tick(r, step, 1);
    return status;
}

static gh_status run_step(const struct run *r, const struct gh_step *step,
                          gh_error *err)
{
    const bool late = gh_capture_flushes_late(r->s->capture);
    gh_status status = GH_OK;

    if (step->flushes && !late) {
        status = gh_capture_flush(r->s->capture, err);
    }
    gh_capture_hold(r->s->capture, step->holds);
    if (status == GH_OK && step->wait != GH_MARK_NONE) {
        status = wait_for(r, step->wait, step->lane, err);
    }
    if (status == GH_OK) {
        status = issue_timed(r, step, err);
    }
    if (status == GH_OK && step->mark != GH_MARK_NONE) {
        status = record(r, step->mark, step->lane, err);
    }
    return status == GH_OK && step->flushes && late
               ? gh_capture_flush(r->s->capture, err)
               : status;
}

/* ---- a run --------------------------------------------------------------- */

static gh_status join(const struct run *r, gh_error *err)
{
    gh_status status = record(r, GH_MARK_END, GH_LANE_COMM, err);

    return status == GH_OK ? wait_for(r, GH_MARK_END, GH_LANE_COMPUTE, err)
                           : status;
}

/* The compute stream follows all that the run has issued. */
static gh_status end_well(const struct run *r, gh_error *err)
{
    gh_status status = r->p->walk.joins ? join(r, err) : GH_OK;

    if (status != GH_OK || r->p->order == GH_OVERLAP_OFF) {
        return status;
    }
    if ((r->pair->flags & GH_OVERLAP_FORWARD) != 0) {
        gh_capture_join(r->s->capture, r->pair->forward_chunk,
                        r->streams[GH_LANE_COMM], r->streams[GH_LANE_COMPUTE]);
    }
    if ((r->pair->flags & GH_OVERLAP_BACKWARD) != 0) {
        gh_capture_join(r->s->capture, r->pair->backward_chunk,
                        r->streams[GH_LANE_COMM], r->streams[GH_LANE_COMPUTE]);
    }
    return GH_OK;
}

/* No sentence of what fails here hides the first one. */
static void end_badly(const struct run *r)
{
    gh_capture_cancel(r->s->capture);
    if (r->p->order != GH_OVERLAP_OFF && join(r, NULL) != GH_OK) {
        gh_device_stream_wait(r->s->dev, r->streams[GH_LANE_COMM], NULL);
    }
}

static gh_status walk(const struct run *r, gh_error *err)
{
    const struct gh_walk *walk = &r->p->walk;
    gh_status status = GH_OK;

    if (walk->begins) {
        status = record(r, GH_MARK_BEGIN, GH_LANE_COMPUTE, err);
    }
    for (uint32_t i = 0; i < walk->n && status == GH_OK; i++) {
        status = run_step(r, &walk->steps[i], err);
    }
    gh_capture_hold(r->s->capture, false);
    if (status == GH_OK) {
        status = end_well(r, err);
    }
    if (status != GH_OK) {
        end_badly(r);
    }
    return status;
}

static void count(struct gh_schedule *s, const struct gh_pairing *p)
{
    s->stats.runs++;
    s->stats.order = p->order;
    s->stats.predicted_ns = p->forecast.total;
    s->stats.predicted_fixed_ns = p->fixed.total;
    s->stats.compute_ns = p->forecast.lanes[GH_LANE_COMPUTE];
    s->stats.comm_ns = p->forecast.lanes[GH_LANE_COMM];
}

/* GRAPHHOOKS_CHECK=ranks: all ranks issue what this one does. */
static gh_status compare(struct run *r, gh_error *err)
{
    const struct gh_rank_run ours = { r->p->forward, r->p->backward,
                                      r->p->early, r->p->hash };
    bool alike;
    gh_status status;

    r->s->running = true;
    status = gh_rank_collect_run(r->s->capture, r->pair->compute, &ours, &alike,
                                 err);
    r->s->running = false;
    if (status != GH_OK || alike) {
        return status;
    }
    gh_times_forget(r->s);
    return gh_pairing_find(r->s, r->pair, &r->p, err);
}

gh_status gh_schedule_run(struct gh_schedule *s, const gh_overlap_pair *pair,
                          gh_error *err)
{
    struct run r = { .s = s, .pair = pair };
    gh_status status;

    status = gh_agree_on_exchanges(s, pair, err);
    if (status == GH_OK) {
        status = gh_times_turn(s, pair, err);
    }
    if (status == GH_OK) {
        status = gh_pairing_find(s, pair, &r.p, err);
    }
    if (status == GH_OK && gh_rank_collect_compares(s->capture)) {
        status = compare(&r, err);
    }
    if (status == GH_OK) {
        status = take_streams(&r, err);
    }
    if (status != GH_OK) {
        return status;
    }
    r.timed = gh_times_begin(s, r.p);
    r.traced = gh_capture_is_traced(s->capture);
    s->running = true;
    status = walk(&r, err);
    s->running = false;
    count(s, r.p);
    return status;
}
