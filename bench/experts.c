/*
 * experts.c - see experts.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/experts.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes --------------------------------------------------------------- */

static bool leaves_weights(const gh_segment *segment)
{
    return segment->first_part == GH_PART_ATTN ||
           (segment->first_part <= GH_PART_MOE_EXPERTS &&
            segment->last_part >= GH_PART_MOE_EXPERTS);
}

static void issue(struct experts *e, struct experts_node *node, uint32_t slot,
                  void *stream)
{
    node->set = slot != GH_SLOT_NONE
                    ? slot
                    : EXPERTS_SLOTS + node->microbatch % EXPERTS_SLOTS;
    e->sets[node->microbatch % EXPERTS_SLOTS] = node->set;
    node->stream = stream;
    e->work.issue(e->work.user, node);
}

/* Runs a segment of a node.  Everything that the node issues is issued in its
 * first segment. */
static gh_status run_segment(struct experts *e, const gh_segment *segment,
                             struct experts_node *node, bool first,
                             gh_error *err)
{
    const bool later = leaves_weights(segment);
    gh_buffer input, output;
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = segment->index,
        .direction = node->direction,
        .microbatch = node->microbatch,
        .flags =
            node->direction == GH_BACKWARD && !later ? GH_PASS_NO_WGRAD : 0,
        .stream = node->stream,
        .inputs = &input,
        .n_inputs = 1,
        .outputs = &output,
        .n_outputs = 1,
    };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status;

    if (node->direction == GH_WGRAD && !later) {
        return GH_OK;
    }
    node->set = e->sets[node->microbatch % EXPERTS_SLOTS];
    input = e->work.buffer(e->work.user, node, false);
    do {
        status = e->bench->gh->layer_enter(e->session, &pass, &d, err);
        if (status != GH_OK) {
            return status;
        }
        if (d.action != GH_ACTION_REPLAYED && first) {
            issue(e, node, d.slot, d.stream);
        }
        output = e->work.buffer(e->work.user, node, true);
        status = e->bench->gh->layer_exit(e->session, &pass, err);
    } while (status == GH_RERUN);
    return status;
}

static void tick(struct experts *e, const struct experts_node *node, int end)
{
    struct experts_timeline *t = e->timeline;

    if (t == NULL || t->n == t->room) {
        return;
    }
    NEED(e->bench, cuEventRecord, (t->events[2 * t->n + end], node->stream));
    if (end != 0) {
        t->spans[t->n++].node = *node;
    }
}

/* Runs the segments between enter and exit, so that graphs can be replayed. */
static gh_status run_segments(struct experts *e, const gh_overlap_node *given,
                              struct experts_node *node, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < given->n_segments && status == GH_OK; i++) {
        const uint32_t s =
            given->direction == GH_FORWARD ? i : given->n_segments - 1 - i;

        node->stream = given->stream;
        status = run_segment(e, &e->segments[given->first_segment + s], node,
                             i == 0, err);
    }
    node->stream = given->stream;
    return status;
}

static gh_status run_node(void *user, const gh_overlap_node *given,
                          gh_error *err)
{
    struct experts *e = user;
    struct experts_node node = { .direction = given->direction,
                                 .stage = (enum stage)given->node,
                                 .layer = given->layer,
                                 .microbatch = given->microbatch,
                                 .stream = given->stream };
    gh_status status = GH_OK;

    tick(e, &node, 0);
    if (e->options.graphs) {
        status = run_segments(e, given, &node, err);
    } else {
        issue(e, &node, GH_SLOT_NONE, node.stream);
    }
    tick(e, &node, 1);
    return status;
}

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *err)
{
    const struct experts *e = user;

    (void)err;
    if (e->work.agree != NULL) {
        e->work.agree(e->work.user, numbers, n);
    }
    return GH_OK;
}

/* ---- a step -------------------------------------------------------------- */

static gh_overlap_stats stats_of(const struct experts *e)
{
    gh_overlap_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };

    bench_need_gh(
        e->bench->gh->overlap_get_stats(e->session, &stats, &err),
        "gh_overlap_get_stats", &err);
    return stats;
}

static void read_timeline(const struct experts *e, struct experts_timeline *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        float begin, end;

        NEED(e->bench, cuEventElapsedTime,
             (&begin, e->begins, t->events[2 * i]));
        NEED(e->bench, cuEventElapsedTime,
             (&end, e->begins, t->events[2 * i + 1]));
        t->spans[i].begin = (double)begin * 1e6;
        t->spans[i].end = (double)end * 1e6;
    }
}

static void wait_for_all(const struct experts *e)
{
    if (e->work.wait != NULL) {
        e->work.wait(e->work.user);
    } else {
        NEED(e->bench, cuCtxSynchronize, ());
    }
}

static struct experts_times run(struct experts *e, uint32_t flags,
                                uint32_t forward, uint32_t backward)
{
    const struct bench *bench = e->bench;
    const gh_overlap_pair pair = { .struct_size = sizeof(pair),
                                   .flags = flags,
                                   .forward_microbatch = forward,
                                   .backward_microbatch = backward,
                                   .compute = bench->stream,
                                   .run_node = run_node,
                                   .agree = agree,
                                   .user = e };
    struct experts_times times = { 0 };
    gh_error err = { "" };
    uint64_t begin;
    float ms;

    wait_for_all(e);
    NEED(bench, cuEventRecord, (e->begins, bench->stream));
    begin = bench_now_ns();
    bench_need_gh(bench->gh->overlap_run(e->session, &pair, &err),
                  "gh_overlap_run", &err);
    times.host = (double)(bench_now_ns() - begin);
    NEED(bench, cuEventRecord, (e->ends, bench->stream));
    wait_for_all(e);
    NEED(bench, cuEventElapsedTime, (&ms, e->begins, e->ends));
    times.pair = times.step = (double)ms * 1e6;
    return times;
}

static struct experts_times step(struct experts *e, uint32_t microbatches,
                                 struct experts_timeline *timeline)
{
    struct experts_times sum, one;
    gh_error err = { "" };

    sum = run(e, GH_OVERLAP_FORWARD, 0, 0);
    sum.pair = sum.host = 0;
    for (uint32_t i = 1; i < microbatches; i++) {
        if (timeline != NULL) {
            timeline->n = 0;
        }
        e->timeline = timeline;
        one = run(e, GH_OVERLAP_FORWARD | GH_OVERLAP_BACKWARD, i, i - 1);
        sum.pair += one.pair / (microbatches - 1);
        sum.host += one.host / (microbatches - 1);
        sum.step += one.step;
        e->stats = stats_of(e);
    }
    e->timeline = NULL;
    if (timeline != NULL) {
        read_timeline(e, timeline);
    }
    sum.step += run(e, GH_OVERLAP_BACKWARD, 0, microbatches - 1).step;
    bench_need_gh(e->bench->gh->iteration_end(e->session, &err),
                  "gh_iteration_end", &err);
    return sum;
}

struct experts_times experts_step(struct experts *e, uint32_t microbatches)
{
    return step(e, microbatches, NULL);
}

void experts_trace(struct experts *e, uint32_t microbatches,
                   struct experts_timeline *t)
{
    memset(t, 0, sizeof(*t));
    t->room = e->options.layers * STAGES * EXPERTS_DIRECTIONS;
    t->spans = calloc(t->room, sizeof(*t->spans));
    t->events = calloc(2 * (size_t)t->room, sizeof(CUevent));
    if (t->spans == NULL || t->events == NULL) {
        bench_die("no memory");
    }
    for (uint32_t i = 0; i < 2 * t->room; i++) {
        NEED(e->bench, cuEventCreate, (&t->events[i], 0));
    }
    (void)step(e, microbatches, t);
}

void experts_timeline_free(const struct bench *bench,
                           struct experts_timeline *t)
{
    for (uint32_t i = 0; i < 2 * t->room; i++) {
        NEED(bench, cuEventDestroy, (t->events[i]));
    }
    free(t->events);
    free(t->spans);
}

void experts_warm_up(struct experts *e, uint32_t microbatches)
{
    /* First eagerly, and recording; then measuring nodes, and in the order
     * found. */
    const int steps = strcmp(e->options.order, "auto") == 0 ? 4 : 2;

    for (int i = 0; i < steps; i++) {
        (void)experts_step(e, microbatches);
    }
}

/* ---- its life ------------------------------------------------------------ */

static gh_model *describe(const struct experts *e)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer),
                                  .kind = GH_LAYER_MOE,
                                  .experts = 8 };
    gh_model *model = NULL;
    gh_error err = { "" };

    bench_need_gh(e->bench->gh->model_create(&model, &err), "gh_model_create",
                  &err);
    for (uint32_t i = 0; i < e->options.layers; i++) {
        bench_need_gh(e->bench->gh->model_add_layer(model, &layer, &err),
                      "gh_model_add_layer", &err);
    }
    return model;
}

static void read_plan(struct experts *e)
{
    const gh_api *gh = e->bench->gh;
    gh_error err = { "" };

    e->n_segments = gh->plan_segment_count(e->session, 0);
    e->segments = calloc(e->n_segments, sizeof(*e->segments));
    if (e->segments == NULL) {
        bench_die("no memory");
    }
    for (uint32_t i = 0; i < e->n_segments; i++) {
        e->segments[i].struct_size = sizeof(e->segments[i]);
        bench_need_gh(
            gh->plan_segment(e->session, 0, i, &e->segments[i], &err),
            "gh_plan_segment", &err);
    }
}

void experts_open(struct experts *e, const struct bench *bench,
                  const struct experts_work *work,
                  const struct experts_options *options)
{
    char order[48];
    /* The caller's own variables must not decide what is measured. */
    const char *environment[] = { order, "GRAPHHOOKS_LOG=off", NULL };
    gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = GH_SESSION_EP_OVERLAP | GH_SESSION_DELAY_WGRAD,
        .driver = bench->options.soft ? bench->driver_path : "cuda",
        .context = bench->ctx,
        .scope = "attn,moe_router,moe_preprocess",
        .max_slots = EXPERTS_SLOTS,
        .environment = environment,
    };
    gh_model *model;
    gh_error err = { "" };

    memset(e, 0, sizeof(*e));
    e->bench = bench;
    e->work = *work;
    e->options = *options;
    snprintf(order, sizeof(order), "GRAPHHOOKS_OVERLAP=%s", options->order);
    model = describe(e);
    desc.model = model;
    bench_need_gh(bench->gh->session_open(&desc, &e->session, &err),
                  "gh_session_open", &err);
    bench->gh->model_destroy(model);
    read_plan(e);
    NEED(bench, cuEventCreate, (&e->begins, 0));
    NEED(bench, cuEventCreate, (&e->ends, 0));
}

void experts_close(struct experts *e)
{
    e->bench->gh->session_close(e->session);
    NEED(e->bench, cuEventDestroy, (e->begins));
    NEED(e->bench, cuEventDestroy, (e->ends));
    free(e->segments);
}
