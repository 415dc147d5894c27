/*
 * schedule.c - a schedule's life: what it makes on the device, and destroys.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "base/error.h"
#include "device/device.h"

#include <stdlib.h>

gh_status gh_schedule_create(const struct gh_plan *plan, struct gh_device *dev,
                             struct gh_capture *capture,
                             const struct gh_schedule_options *options,
                             struct gh_schedule **schedule_p, gh_error *err)
{
    struct gh_schedule *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    s->plan = plan;
    s->dev = dev;
    s->capture = capture;
    s->options = *options;
    s->timing = options->order == GH_OVERLAP_AUTO && dev != NULL
                    ? GH_TIMING_WAITS
                    : GH_TIMING_NEVER;
    *schedule_p = s;
    return GH_OK;
}

gh_status gh_schedule_make_objects(struct gh_schedule *s, bool needs_comm,
                                   gh_error *err)
{
    struct gh_device_before before = gh_device_enter(s->dev);
    gh_status status = GH_OK;

    for (uint32_t i = 1; i < GH_MARKS && status == GH_OK; i++) {
        if (s->marks[i] == NULL) {
            status = gh_device_event_create(s->dev, &s->marks[i], err);
        }
    }
    if (status == GH_OK && needs_comm && s->lib_comm_stream == NULL) {
        status =
            gh_device_stream_create_urgent(s->dev, &s->lib_comm_stream, err);
    }
    gh_device_leave(s->dev, before);
    return status;
}

void gh_schedule_destroy(struct gh_schedule *s)
{
    struct gh_device_before before;

    if (s == NULL) {
        return;
    }
    if (s->dev != NULL) {
        before = gh_device_enter(s->dev);
        gh_pairings_free(s);
        for (uint32_t i = 0; i < GH_MARKS; i++) {
            gh_device_event_destroy(s->dev, s->marks[i]);
        }
        gh_device_stream_destroy(s->dev, s->lib_comm_stream);
        gh_device_leave(s->dev, before);
    }
    gh_pairings_free(s);
    free(s->ns);
    free(s);
}

bool gh_schedule_is_running(const struct gh_schedule *s)
{
    return s->running;
}

void gh_schedule_stats(const struct gh_schedule *s, gh_overlap_stats *stats)
{
    *stats = s->stats;
}
