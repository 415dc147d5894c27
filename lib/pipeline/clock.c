/*
 * clock.c - runs a schedule on a virtual clock.
 *
 * A stage runs its actions one after the other.  An action begins when the
 * stage is free and the tensor has come that it works on: a forward's from the
 * part of the model before, a backward's from the part behind.  Stages send
 * while they compute.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pipeline/pipeline.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

#define NOT_YET (-1.0)

/* Where each stage is, and when each pass of each part of the model has ended:
 * forwards first, then backwards of inputs. */
struct run {
    const struct gh_pipeline *pipeline;
    const struct gh_pipeline_times *times;
    const struct gh_pipeline_watcher *watcher;
    uint32_t n_parts;
    uint32_t *next;
    double *free_at;
    double *ends[2];
};

/* ---- one action ---------------------------------------------------------- */

static double *end_of(const struct run *run, bool backward, uint32_t part,
                      uint32_t microbatch)
{
    return &run->ends[backward][part * run->pipeline->n_microbatches +
                                microbatch];
}

/* The part whose tensor an action of a part works on; its own for the first
 * forward, the last backward, and for weights. */
static uint32_t source_of(const struct run *run, const struct gh_action *a,
                          uint32_t part)
{
    if (a->kind == GH_ACTION_FORWARD) {
        return part == 0 ? part : part - 1;
    }
    return a->kind == GH_ACTION_WEIGHTS || part + 1 == run->n_parts ? part
                                                                    : part + 1;
}

/* When what the action works on is there; NOT_YET. */
static double ready_at(const struct run *run, uint32_t stage,
                       const struct gh_action *a)
{
    const uint32_t part = gh_pipeline_part(run->pipeline, stage, a->chunk);
    const uint32_t source = source_of(run, a, part);
    const bool backward = a->kind != GH_ACTION_FORWARD;
    double end;

    if (source == part) {
        return a->kind == GH_ACTION_FORWARD
                   ? 0
                   : *end_of(run, a->kind == GH_ACTION_WEIGHTS, part,
                             a->microbatch);
    }
    end = *end_of(run, backward, source, a->microbatch);
    if (end == NOT_YET || gh_pipeline_stage(run->pipeline, source) == stage) {
        return end;
    }
    return end + run->times->send;
}

static double time_of(const struct run *run, uint32_t stage,
                      enum gh_action_kind kind)
{
    const double *stages = run->times->stages;

    return run->times->pass[kind] * (stages != NULL ? stages[stage] : 1);
}

/* Runs the actions of a stage that can begin by now.  False: there was none. */
static bool go_on(const struct run *run, uint32_t stage)
{
    const struct gh_stage *s = &run->pipeline->stages[stage];
    bool any = false;

    while (run->next[stage] < s->n) {
        const struct gh_action *a = &s->actions[run->next[stage]];
        const uint32_t part = gh_pipeline_part(run->pipeline, stage, a->chunk);
        const double ready = ready_at(run, stage, a);

        if (ready == NOT_YET) {
            break;
        }
        if (ready > run->free_at[stage]) {
            run->free_at[stage] = ready;
        }
        if (run->watcher != NULL) {
            run->watcher->ran(run->watcher->user, stage, a,
                              run->free_at[stage]);
        }
        run->free_at[stage] += time_of(run, stage, a->kind);
        if (a->kind != GH_ACTION_WEIGHTS) {
            *end_of(run, a->kind != GH_ACTION_FORWARD, part, a->microbatch) =
                run->free_at[stage];
        }
        run->next[stage]++;
        any = true;
    }
    return any;
}

/* ---- all ----------------------------------------------------------------- */

static gh_status stuck(const struct run *run, gh_error *err)
{
    uint32_t stage = 0;
    const struct gh_action *a;
    char where[32] = "";

    while (run->next[stage] == run->pipeline->stages[stage].n) {
        stage++;
    }
    a = &run->pipeline->stages[stage].actions[run->next[stage]];
    if (a->line != 0) {
        snprintf(where, sizeof(where), "line %u: ", a->line);
    }
    return gh_fail(
        err, GH_ERR_INVALID,
        "%sstage %u waits for ever at its %s of chunk %u, microbatch %u: what "
        "it needs from stage %u comes after an action that waits for this one",
        where, stage, gh_action_name(a->kind), a->chunk, a->microbatch,
        gh_pipeline_stage(
            run->pipeline,
            source_of(run, a,
                      gh_pipeline_part(run->pipeline, stage, a->chunk))));
}

static gh_status run_all(struct run *run, struct gh_pipeline_clock *clock,
                         gh_error *err)
{
    const struct gh_pipeline *pipeline = run->pipeline;
    bool goes_on = true, whole = true;

    while (goes_on) {
        goes_on = false;
        for (uint32_t i = 0; i < pipeline->n_stages; i++) {
            goes_on |= go_on(run, i);
        }
    }
    clock->total = clock->busy = 0;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const struct gh_stage *s = &pipeline->stages[i];

        whole &= run->next[i] == s->n;
        if (run->free_at[i] > clock->total) {
            clock->total = run->free_at[i];
        }
        for (uint32_t k = 0; k < s->n; k++) {
            clock->busy += time_of(run, i, s->actions[k].kind);
        }
    }
    return whole ? GH_OK : stuck(run, err);
}

gh_status gh_pipeline_run(const struct gh_pipeline *pipeline,
                          const struct gh_pipeline_times *times,
                          struct gh_pipeline_clock *clock, gh_error *err)
{
    return gh_pipeline_watch(pipeline, times, NULL, clock, err);
}

gh_status gh_pipeline_watch(const struct gh_pipeline *pipeline,
                            const struct gh_pipeline_times *times,
                            const struct gh_pipeline_watcher *watcher,
                            struct gh_pipeline_clock *clock, gh_error *err)
{
    const uint32_t n_parts = pipeline->n_stages * pipeline->n_chunks;
    const size_t passes = (size_t)n_parts * pipeline->n_microbatches;
    struct run run = {
        .pipeline = pipeline,
        .times = times,
        .watcher = watcher,
        .n_parts = n_parts,
        .next = calloc(pipeline->n_stages, sizeof(*run.next)),
        .free_at = calloc(pipeline->n_stages, sizeof(*run.free_at)),
        .ends = { malloc(2 * passes * sizeof(*run.ends[0])), NULL },
    };
    gh_status status;

    if (run.next == NULL || run.free_at == NULL || run.ends[0] == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY,
                         "no memory to run a schedule of %llu passes",
                         (unsigned long long)passes);
    } else {
        for (size_t i = 0; i < 2 * passes; i++) {
            run.ends[0][i] = NOT_YET;
        }
        run.ends[1] = run.ends[0] + passes;
        status = run_all(&run, clock, err);
    }
    free(run.next);
    free(run.free_at);
    free(run.ends[0]);
    return status;
}

double gh_pipeline_bubble(const struct gh_pipeline *pipeline,
                          const struct gh_pipeline_clock *clock)
{
    const double all = clock->total * pipeline->n_stages;

    return all > 0 ? (all - clock->busy) / all : 0;
}
