/*
 * pass_times.c - see pass_times.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pass_times.h"

#include <stdlib.h>
#include <string.h>

/* A pass, and the events before and after it. */
struct span {
    enum gh_action_kind kind;
    CUevent begin, end;
};

struct pass_times {
    struct device *dev;
    CUevent begin; /* of the step */
    struct span *spans;
    int n, room; /* passes of the step, and spans that have events */
};

struct pass_times *pass_times_open(struct device *dev)
{
    struct pass_times *times = calloc(1, sizeof(*times));

    if (times == NULL) {
        (void)device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    times->dev = dev;
    if (DEVICE_CALL(dev, cuEventCreate, &times->begin, 0) != 0) {
        free(times);
        return NULL;
    }
    return times;
}

void pass_times_close(struct pass_times *times)
{
    if (times == NULL) {
        return;
    }
    for (int i = 0; i < times->room; i++) {
        (void)times->dev->drv.cuEventDestroy(times->spans[i].begin);
        (void)times->dev->drv.cuEventDestroy(times->spans[i].end);
    }
    (void)times->dev->drv.cuEventDestroy(times->begin);
    free(times->spans);
    free(times);
}

void pass_times_begin_step(struct pass_times *times, CUstream stream)
{
    times->n = 0;
    DEVICE_CALL(times->dev, cuEventRecord, times->begin, stream);
}

/* Makes one more pair of events.  Returns 0, or -1: dev->error. */
static int grow(struct pass_times *times)
{
    struct device *dev = times->dev;
    struct span *spans =
        realloc(times->spans, (size_t)(times->room + 1) * sizeof(*spans));
    struct span *added;

    if (spans == NULL) {
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    times->spans = spans;
    added = &spans[times->room];
    memset(added, 0, sizeof(*added));
    if (DEVICE_CALL(dev, cuEventCreate, &added->begin, 0) != 0) {
        return -1;
    }
    if (DEVICE_CALL(dev, cuEventCreate, &added->end, 0) != 0) {
        (void)dev->drv.cuEventDestroy(added->begin);
        return -1;
    }
    times->room++;
    return 0;
}

void pass_times_begin(struct pass_times *times, enum gh_action_kind kind,
                      CUstream stream)
{
    if (times->n == times->room && grow(times) != 0) {
        return;
    }
    times->spans[times->n].kind = kind;
    DEVICE_CALL(times->dev, cuEventRecord, times->spans[times->n].begin,
                stream);
}

void pass_times_end(struct pass_times *times, CUstream stream)
{
    if (times->n < times->room) {
        DEVICE_CALL(times->dev, cuEventRecord, times->spans[times->n].end,
                    stream);
        times->n++;
    }
}

static double between(const struct pass_times *times, CUevent from, CUevent to)
{
    float ms = 0;

    DEVICE_CALL(times->dev, cuEventElapsedTime, &ms, from, to);
    return (double)ms;
}

void pass_times_read(const struct pass_times *times, struct stage_time *time)
{
    int n[GH_ACTIONS] = { 0 };

    memset(time, 0, sizeof(*time));
    for (int i = 0; i < times->n; i++) {
        const struct span *span = &times->spans[i];
        const double ms = between(times, span->begin, span->end);

        time->busy += ms;
        time->pass[span->kind] += ms;
        n[span->kind]++;
        time->step = between(times, times->begin, span->end);
    }
    for (int i = 0; i < GH_ACTIONS; i++) {
        time->pass[i] = n[i] > 0 ? time->pass[i] / n[i] : 0;
    }
}

double pass_times_idle(const struct stage_time *stages, int n)
{
    double longest = 0, busy = 0;

    for (int i = 0; i < n; i++) {
        longest = stages[i].step > longest ? stages[i].step : longest;
        busy += stages[i].busy;
    }
    return longest > 0 ? 1 - busy / (n * longest) : 0;
}

struct gh_pipeline_times pass_times_clock(const struct stage_time *stages,
                                          int n, double *room)
{
    struct gh_pipeline_times times = { .stages = room };
    double busy = 0;

    for (int i = 0; i < n; i++) {
        busy += stages[i].busy / n;
        for (int k = 0; k < GH_ACTIONS; k++) {
            times.pass[k] += stages[i].pass[k] / n;
        }
    }
    for (int i = 0; i < n; i++) {
        room[i] = busy > 0 ? stages[i].busy / busy : 1;
    }
    return times;
}
