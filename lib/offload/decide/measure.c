/*
 * measure.c - see measure.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/measured.h"

#include <stdlib.h>

/* Points, copies and waits of a step beyond these are not measured. */
#define MOST_POINTS 16384u
#define MOST_COPIES 8192u
#define MOST_WAITS 8192u

static void forget_copies(struct gh_offload *o)
{
    for (uint32_t c = 0; c < o->table.n_classes; c++) {
        struct gh_ring *rings[] = { &o->table.classes[c]->out,
                                    &o->table.classes[c]->back };

        for (int way = 0; way < 2; way++) {
            for (uint32_t b = 0; b < rings[way]->n; b++) {
                rings[way]->buffers[b]->timed = 0;
            }
        }
    }
}

void gh_measure_begin(struct gh_offload *o)
{
    struct gh_measure *m = calloc(1, sizeof(*m));

    gh_measure_free(o);
    o->measure = m;
    if (m == NULL) {
        return;
    }
    m->points = calloc(MOST_POINTS, sizeof(*m->points));
    m->copies = calloc(MOST_COPIES, sizeof(*m->copies));
    m->waits = calloc(MOST_WAITS, sizeof(*m->waits));
    if (m->points == NULL || m->copies == NULL || m->waits == NULL) {
        gh_measure_free(o);
        return;
    }
    forget_copies(o);
}

void gh_measure_end(struct gh_offload *o)
{
    o->measure->over = true;
}

void gh_measure_free(struct gh_offload *o)
{
    struct gh_measure *m = o->measure;

    if (m == NULL) {
        return;
    }
    for (uint32_t p = 0; p < m->n_points; p++) {
        gh_device_event_destroy(o->dev, m->points[p].event);
    }
    for (uint32_t c = 0; c < m->n_copies; c++) {
        gh_device_event_destroy(o->dev, m->copies[c].began);
        gh_device_event_destroy(o->dev, m->copies[c].ended);
    }
    free(m->points);
    free(m->copies);
    free(m->waits);
    free(m);
    o->measure = NULL;
}

/* A new event, recorded on the stream. */
static bool stamp(struct gh_offload *o, void *stream, void **event_p)
{
    if (gh_device_event_create_timed(o->dev, event_p, NULL) != GH_OK) {
        o->measure->failed = true;
        return false;
    }
    if (gh_device_event_record(o->dev, *event_p, stream, NULL) != GH_OK) {
        o->measure->failed = true;
    }
    return !o->measure->failed;
}

static bool goes_on(const struct gh_measure *m)
{
    return !m->over && !m->failed;
}

void gh_measure_point(struct gh_offload *o, enum gh_point what,
                      const struct gh_instance *i, void *stream)
{
    struct gh_measure *m = o->measure;
    struct point *point;

    if (!goes_on(m) || m->n_points == MOST_POINTS ||
        (i != NULL && i->for_nobody)) {
        return;
    }
    m->idle +=
        m->n_points != 0 &&
        gh_device_event_has_ended(o->dev, m->points[m->n_points - 1].event);
    point = &m->points[m->n_points];
    *point = (struct point){ .what = what, .stream = stream };
    if (i != NULL) {
        point->group = i->group;
        point->microbatch = i->microbatch;
    }
    if (stamp(o, stream, &point->event)) {
        m->n_points++;
    } else {
        gh_device_event_destroy(o->dev, point->event);
    }
}

void gh_measure_copy_begin(struct gh_offload *o, const struct gh_instance *i,
                           bool out)
{
    struct gh_measure *m = o->measure;
    struct copy *copy;

    if (!goes_on(m) || m->n_copies == MOST_COPIES) {
        return;
    }
    copy = &m->copies[m->n_copies++];
    *copy = (struct copy){ .group = i->group, .out = out };
    for (uint32_t r = 0; r < i->n_runs; r++) {
        copy->bytes += i->runs[r].bytes;
    }
    (void)stamp(o, out ? o->out : o->back, &copy->began);
}

void gh_measure_copy_end(struct gh_offload *o, struct gh_ring_buffer *buffer,
                         bool out)
{
    struct gh_measure *m = o->measure;
    struct copy *copy = &m->copies[m->n_copies - (m->n_copies != 0)];

    /* A copy that began before this step, or found no room, is not measured. */
    if (buffer != NULL) {
        buffer->timed = 0;
    }
    if (goes_on(m) && m->n_copies != 0 && copy->ended == NULL &&
        stamp(o, out ? o->out : o->back, &copy->ended)) {
        copy->whole = true;
        if (buffer != NULL) {
            buffer->timed = m->n_copies;
        }
    }
}

void gh_measure_wait(struct gh_offload *o, const struct gh_ring_buffer *buffer,
                     const struct gh_group *group, bool saves)
{
    struct gh_measure *m = o->measure;

    if (goes_on(m) && buffer->timed != 0 && m->n_points != 0 &&
        m->n_waits < MOST_WAITS) {
        m->waits[m->n_waits++] =
            (struct wait){ m->n_points - 1, buffer->timed - 1, group, saves };
    }
}
