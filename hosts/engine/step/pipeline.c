/*
 * pipeline.c - see pipeline.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pipeline.h"

#include "step/microbatch.h"
#include "step/pipeline_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pipeline {
    struct messages messages;
    struct pass_times *times;       /* NULL: none are taken */
    struct gh_pipeline **schedules; /* by the number of microbatches */
    uint32_t n_issued;              /* actions of the step; the last may have
                                       failed */
    bool issues;                    /* in pipeline_step() */
};

int pipeline_open(struct trainer *trainer)
{
    struct pipeline *pipeline;

    if (options_pp(trainer->options) == 1) {
        return 0;
    }
    pipeline = calloc(1, sizeof(*pipeline));
    trainer->pipeline = pipeline;
    if (pipeline != NULL) {
        pipeline->schedules = calloc((size_t)trainer->max_count + 1,
                                     sizeof(*pipeline->schedules));
    }
    if (pipeline == NULL || pipeline->schedules == NULL) {
        return device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (trainer->options->time_passes > 0) {
        pipeline->times = pass_times_open(trainer->dev);
        if (pipeline->times == NULL) {
            return -1;
        }
    }
    return messages_open(&pipeline->messages, trainer);
}

void pipeline_close(struct trainer *trainer)
{
    struct pipeline *pipeline = trainer->pipeline;

    if (pipeline == NULL) {
        return;
    }
    messages_close(&pipeline->messages);
    pass_times_close(pipeline->times);
    for (int i = 0; pipeline->schedules != NULL && i <= trainer->max_count;
         i++) {
        gh_pipeline_free(pipeline->schedules[i]);
    }
    free(pipeline->schedules);
    free(pipeline);
    trainer->pipeline = NULL;
}

/* Makes the schedule of a number of microbatches when a step first has it. */
static const struct gh_pipeline *schedule_of(struct trainer *trainer, int count)
{
    struct gh_pipeline **schedule = &trainer->pipeline->schedules[count];
    char text[512];

    if (*schedule == NULL &&
        pipeline_schedule(trainer->options, count, schedule, text,
                          sizeof(text)) != 0) {
        (void)device_fail(trainer->dev, "%s", text);
    }
    return *schedule;
}

int pipeline_in_flight(struct trainer *trainer, int count, int chunk)
{
    const struct gh_pipeline *schedule = schedule_of(trainer, count);
    const int stage = ranks_stage(trainer->options->ranks);

    return schedule == NULL ? 0
                            : (int)gh_pipeline_in_flight(
                                  schedule, (uint32_t)stage, (uint32_t)chunk);
}

/* Lets a backward wait until the gradient is sent that the last microbatch in
 * its set has left there.  Other sets do not wait for it. */
static void wait_for_set(const struct trainer *trainer, int microbatch,
                         int count)
{
    const struct flight *flights = trainer->chunk->flights;
    int last = -1;

    for (int i = 0; i < count; i++) {
        if (flights[i].set == flights[microbatch].set && flights[i].ended > 0 &&
            (last < 0 || flights[i].ended > flights[last].ended)) {
            last = i;
        }
    }
    if (last >= 0) {
        messages_wait_sent(&trainer->pipeline->messages, last);
    }
}

static int backward(struct trainer *trainer, int microbatch)
{
    if (microbatch_backward(trainer, microbatch) != 0) {
        return -1;
    }
    trainer->chunk->flights[microbatch].ended = ++trainer->chunk->n_ended;
    return 0;
}

/* Runs the passes of an action, whose tensor has come. */
static int run_passes(struct trainer *trainer, const struct gh_action *a)
{
    struct messages *messages = &trainer->pipeline->messages;
    const int microbatch = (int)a->microbatch;
    int status;

    if (a->kind == GH_ACTION_WEIGHTS) {
        return microbatch_wgrad(trainer, microbatch);
    }
    status = a->kind == GH_ACTION_FORWARD
                 ? microbatch_forward(trainer, microbatch)
                 : backward(trainer, microbatch);
    if (status == 0) {
        messages_send(messages, a);
    }
    return status == 0 && trainer->model.delay_wgrad &&
                   a->kind == GH_ACTION_BACKWARD
               ? microbatch_wgrad(trainer, microbatch)
               : status;
}

static int run(struct trainer *trainer, const struct gh_action *a, int count)
{
    struct pass_times *times =
        trainer->times_passes ? trainer->pipeline->times : NULL;
    int status;

    trainer->chunk = &trainer->chunks[a->chunk];
    if (a->kind == GH_ACTION_WEIGHTS && !trainer->model.delay_wgrad) {
        return 0;
    }
    messages_receive(&trainer->pipeline->messages, a);
    if (a->kind == GH_ACTION_BACKWARD || a->kind == GH_ACTION_INPUTS) {
        wait_for_set(trainer, (int)a->microbatch, count);
    }
    if (times != NULL) {
        pass_times_begin(times, a->kind, trainer->streams[0]);
    }
    status = run_passes(trainer, a);
    if (times != NULL) {
        pass_times_end(times, trainer->streams[0]);
    }
    return status;
}

int pipeline_step(struct trainer *trainer, int count)
{
    struct pipeline *pipeline = trainer->pipeline;
    const struct gh_pipeline *schedule = schedule_of(trainer, count);
    const struct gh_stage *stage;

    if (schedule == NULL) {
        return -1;
    }
    stage = &schedule->stages[ranks_stage(trainer->options->ranks)];
    messages_begin_step(&pipeline->messages, schedule);
    if (trainer->times_passes) {
        pass_times_begin_step(pipeline->times, trainer->streams[0]);
    }
    pipeline->issues = true;
    pipeline->n_issued = 0;
    for (uint32_t i = 0; i < stage->n; i++) {
        pipeline->n_issued = i + 1;
        if (run(trainer, &stage->actions[i], count) != 0 ||
            trainer->dev->code != CUDA_SUCCESS) {
            return -1;
        }
    }
    pipeline->issues = false;
    return 0;
}

int pipeline_times(const struct trainer *trainer, struct stage_time *time)
{
    pass_times_read(trainer->pipeline->times, time);
    return trainer->dev->code == CUDA_SUCCESS ? 0 : -1;
}

/* ---- what a stage waits for -------------------------------------------------
 */

static const struct gh_stage *stage_of(const struct trainer *trainer)
{
    return &trainer->pipeline->messages.schedule
                ->stages[ranks_stage(trainer->options->ranks)];
}

int pipeline_synchronize(const struct trainer *trainer)
{
    const struct pipeline *pipeline = trainer->pipeline;
    const struct ranks *ranks = trainer->options->ranks;

    for (uint32_t i = 0; pipeline != NULL && i < pipeline->n_issued; i++) {
        const struct gh_action *a = &stage_of(trainer)->actions[i];
        char what[160];
        CUevent came;
        uint32_t from;

        if (!messages_find(&pipeline->messages, a, &from, &came)) {
            continue;
        }
        snprintf(what, sizeof(what),
                 "stage %d waits for stage %u, in its %s of chunk %u, "
                 "microbatch %u: ",
                 ranks_stage(ranks), from, gh_action_name(a->kind), a->chunk,
                 a->microbatch);
        if (comm_wait(&ranks->line, came, &ranks->watch, what) != 0) {
            return -1;
        }
    }
    return 0;
}

void pipeline_say_where(const struct trainer *trainer, char *text,
                        size_t text_bytes)
{
    const struct pipeline *pipeline = trainer->pipeline;
    const size_t used = strlen(text);
    const struct gh_action *a;

    if (pipeline == NULL || !pipeline->issues || pipeline->n_issued == 0) {
        return;
    }
    a = &stage_of(trainer)->actions[pipeline->n_issued - 1];
    snprintf(text + used, text_bytes - used,
             "; stage %d was at its %s of chunk %u, microbatch %u",
             ranks_stage(trainer->options->ranks), gh_action_name(a->kind),
             a->chunk, a->microbatch);
}
