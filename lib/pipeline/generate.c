/*
 * generate.c - schedules that need no file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- one forward, one backward ------------------------------------------- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The i-th forward of a stage: groups of microbatches go through all chunks one
 * after the other. */
static struct gh_action forward_at(const struct gh_interleaving *how,
                                   uint32_t n_microbatches, uint32_t i)
{
    const uint32_t group = how->n_chunks > 1 ? how->group : n_microbatches;
    const uint32_t first = i / (group * how->n_chunks) * group;
    const uint32_t size = smaller(group, n_microbatches - first);
    const uint32_t within = i - first * how->n_chunks;

    return (struct gh_action){ .kind = GH_ACTION_FORWARD,
                               .chunk = within / size,
                               .microbatch = first + within % size };
}

/* The i-th backward: the same, from the last chunk to the first. */
static struct gh_action backward_at(const struct gh_interleaving *how,
                                    uint32_t n_microbatches, uint32_t i)
{
    struct gh_action a = forward_at(how, n_microbatches, i);

    a.kind = GH_ACTION_BACKWARD;
    a.chunk = how->n_chunks - 1 - a.chunk;
    return a;
}

static gh_status fill_stage(struct gh_pipeline *pipeline,
                            const struct gh_interleaving *how, uint32_t stage,
                            gh_error *err)
{
    const uint32_t n = pipeline->n_microbatches;
    const uint32_t passes = n * how->n_chunks;
    const uint32_t warmup = (uint32_t)gh_pipeline_warmup(how, stage, passes);
    gh_status status = GH_OK;
    struct gh_action a;

    for (uint32_t i = 0; i < passes + warmup && status == GH_OK; i++) {
        if (i < passes) {
            a = forward_at(how, n, i);
            status = gh_pipeline_add(pipeline, stage, &a, err);
        }
        if (i >= warmup && status == GH_OK) {
            a = backward_at(how, n, i - warmup);
            status = gh_pipeline_add(pipeline, stage, &a, err);
        }
    }
    return status;
}

gh_status gh_pipeline_interleaved(const struct gh_interleaving *how,
                                  uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err)
{
    struct gh_pipeline *pipeline;
    gh_status status = gh_pipeline_check_groups(how, n_microbatches, err);

    if (status == GH_OK) {
        status = gh_pipeline_new(how->n_stages, how->n_chunks, n_microbatches,
                                 GH_PLACED_LOOPED, &pipeline, err);
    }
    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < how->n_stages && status == GH_OK; i++) {
        status = fill_stage(pipeline, how, i, err);
    }
    if (status != GH_OK) {
        gh_pipeline_free(pipeline);
        return status;
    }
    *pipeline_p = pipeline;
    return GH_OK;
}

/* ---- zero bubble --------------------------------------------------------- */

/* One stage of a schedule that is made along a clock on which each pass takes
 * one tick. */
struct progress {
    uint32_t forwards, inputs, weights; /* begun so far */
};

struct made {
    struct gh_pipeline *pipeline;
    struct progress stages[GH_PIPELINE_STAGES];
    struct progress ended[GH_PIPELINE_STAGES]; /* by the tick at hand */
};

/* What a stage does in a tick: a forward, if as few microbatches wait for their
 * inputs as with 1F1B, and no more are in flight than on the first stage; then
 * inputs, as others wait for them; then weights. */
static enum gh_action_kind choose(const struct made *made, uint32_t stage)
{
    const uint32_t last = made->pipeline->n_stages - 1;
    const struct progress *own = &made->stages[stage];
    const uint32_t come = stage == 0 ? made->pipeline->n_microbatches
                                     : made->ended[stage - 1].forwards;
    const uint32_t back = stage == last ? made->ended[stage].forwards
                                        : made->ended[stage + 1].inputs;

    if (own->forwards < come && own->forwards - own->inputs <= last - stage &&
        own->forwards - own->weights <= last) {
        return GH_ACTION_FORWARD;
    }
    if (own->inputs < back && own->inputs < own->forwards) {
        return GH_ACTION_INPUTS;
    }
    return own->weights < own->inputs ? GH_ACTION_WEIGHTS : GH_ACTIONS;
}

static gh_status tick(struct made *made, bool *any, gh_error *err)
{
    const uint32_t n = made->pipeline->n_stages;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n; i++) {
        made->ended[i] = made->stages[i];
    }
    *any = false;
    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        struct progress *own = &made->stages[i];
        uint32_t *const counts[GH_ACTIONS] = {
            [GH_ACTION_FORWARD] = &own->forwards,
            [GH_ACTION_INPUTS] = &own->inputs,
            [GH_ACTION_WEIGHTS] = &own->weights,
        };
        const enum gh_action_kind kind = choose(made, i);

        if (kind != GH_ACTIONS) {
            const struct gh_action a = { .kind = kind,
                                         .microbatch = (*counts[kind])++ };

            status = gh_pipeline_add(made->pipeline, i, &a, err);
            *any = true;
        }
    }
    return status;
}

gh_status gh_pipeline_zero_bubble(uint32_t n_stages, uint32_t n_microbatches,
                                  struct gh_pipeline **pipeline_p,
                                  gh_error *err)
{
    struct made *made = calloc(1, sizeof(*made));
    gh_status status;
    bool any = true;

    if (made == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    status = gh_pipeline_new(n_stages, 1, n_microbatches, GH_PLACED_LOOPED,
                             &made->pipeline, err);
    while (status == GH_OK && any) {
        status = tick(made, &any, err);
    }
    if (status == GH_OK) {
        *pipeline_p = made->pipeline;
    } else {
        gh_pipeline_free(made->pipeline);
    }
    free(made);
    return status;
}

/* ---- DualPipeV ----------------------------------------------------------- */

/* A stage that is being filled: the next microbatch of each chunk, and the
 * passes of weights that have been put off, in the order of their inputs. */
struct filling {
    struct gh_pipeline *pipeline;
    uint32_t stage;
    uint32_t forwards[2], backwards[2];
    struct gh_action *put_off;
    uint32_t n_put_off, n_weights;
    gh_status status;
    gh_error *err;
};

static void add(struct filling *f, const struct gh_action *action)
{
    if (f->status == GH_OK) {
        f->status = gh_pipeline_add(f->pipeline, f->stage, action, f->err);
    }
}

static void forward(struct filling *f, uint32_t chunk)
{
    const struct gh_action a = { .kind = GH_ACTION_FORWARD,
                                 .chunk = chunk,
                                 .microbatch = f->forwards[chunk]++ };

    add(f, &a);
}

static void backward(struct filling *f, uint32_t chunk)
{
    const struct gh_action a = { .kind = GH_ACTION_BACKWARD,
                                 .chunk = chunk,
                                 .microbatch = f->backwards[chunk]++ };

    add(f, &a);
}

/* The backward of inputs; weights() runs what is left of it. */
static void inputs(struct filling *f, uint32_t chunk)
{
    struct gh_action a = { .kind = GH_ACTION_INPUTS,
                           .chunk = chunk,
                           .microbatch = f->backwards[chunk]++ };

    add(f, &a);
    a.kind = GH_ACTION_WEIGHTS;
    f->put_off[f->n_put_off++] = a;
}

static void weights(struct filling *f)
{
    add(f, &f->put_off[f->n_weights++]);
}

/* The last backwards of both chunks.  From the middle on they are of inputs
 * alone, of odd stages one pass earlier. */
static void drain(struct filling *f, uint32_t rounds)
{
    bool splits = false;

    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            splits |= i == rounds / 2 && (k == 1 || f->stage % 2 == 1);
            (splits ? inputs : backward)(f, 1 - k);
        }
    }
}

/* The steps of the published schedule, of which F0 is a forward of chunk 0, B1
 * a backward of chunk 1, and W a pass of weights. */
static void fill_dualpipev(struct filling *f)
{
    const uint32_t before = f->stage + 1;
    const uint32_t behind = f->pipeline->n_stages - before;
    const uint32_t steady =
        f->pipeline->n_microbatches - 2 * f->pipeline->n_stages + before;

    for (uint32_t i = 0; i < 2 * behind; i++) { /* F0 */
        forward(f, 0);
    }
    for (uint32_t i = 0; i < before; i++) { /* F0 F1 */
        forward(f, 0);
        forward(f, 1);
    }
    for (uint32_t i = 0; i < behind; i++) { /* B1 W F1 */
        inputs(f, 1);
        weights(f);
        forward(f, 1);
    }
    for (uint32_t i = 0; i < steady; i++) { /* F0 B1 F1 B0 */
        forward(f, 0);
        backward(f, 1);
        forward(f, 1);
        backward(f, 0);
    }
    for (uint32_t i = 0; i < behind; i++) { /* B1 F1 B0 */
        backward(f, 1);
        forward(f, 1);
        backward(f, 0);
    }
    drain(f, before);                       /* B1 B0 */
    for (uint32_t i = 0; i < behind; i++) { /* W B0 */
        weights(f);
        inputs(f, 0);
    }
    for (uint32_t i = 0; i < before; i++) { /* W */
        weights(f);
    }
}

gh_status gh_pipeline_dualpipev(uint32_t n_stages, uint32_t n_microbatches,
                                struct gh_pipeline **pipeline_p, gh_error *err)
{
    struct filling f = { .err = err };

    if (n_microbatches < 2ull * n_stages) {
        return gh_fail(err, GH_ERR_INVALID,
                       "a dualpipev schedule of %u stages and %u microbatches: "
                       "give at least twice as many microbatches as stages",
                       n_stages, n_microbatches);
    }
    f.status = gh_pipeline_new(n_stages, 2, n_microbatches, GH_PLACED_V,
                               &f.pipeline, err);
    if (f.status != GH_OK) {
        return f.status;
    }
    f.put_off = malloc(2 * (size_t)n_stages * sizeof(*f.put_off));
    if (f.put_off == NULL) {
        f.status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    for (uint32_t i = 0; i < n_stages && f.status == GH_OK; i++) {
        f.stage = i;
        f.n_put_off = f.n_weights = 0;
        for (uint32_t c = 0; c < 2; c++) {
            f.forwards[c] = f.backwards[c] = 0;
        }
        fill_dualpipev(&f);
    }
    free(f.put_off);
    if (f.status != GH_OK) {
        gh_pipeline_free(f.pipeline);
        return f.status;
    }
    *pipeline_p = f.pipeline;
    return GH_OK;
}
