/*
 * measured.h - what measure.c writes down; times.c and exchanges.c read it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_MEASURED_H
#define GH_OFFLOAD_MEASURED_H

#include "offload/decide/measure.h"

struct point {
    enum gh_point what;
    const struct gh_group *group; /* NULL: a launch */
    uint32_t microbatch;
    void *stream, *event;
    double at; /* read: nanoseconds after the first point */
};

struct copy {
    const struct gh_group *group;
    uint64_t bytes;
    bool out, whole;
    void *began, *ended;
};

/* A launch that waits for a copy: to write the group, or to read it. */
struct wait {
    uint32_t point, copy;
    const struct gh_group *group;
    bool saves;
};

struct gh_measure {
    struct point *points;
    struct copy *copies;
    struct wait *waits;
    uint32_t n_points, n_copies, n_waits;
    uint32_t idle; /* points that the device had reached before the next one was
                      issued: it was waiting for the host */
    bool over;     /* the step is */
    bool failed;
};

#endif
