/*
 * event.h - events: a point in a stream, or in a graph while capturing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_EVENT_H
#define SOFTCUDA_EVENT_H

#include "driver/driver.h"
#include "softcuda/api/nodes.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/shared.h"

#include <stdint.h>

enum event_state {
    EVENT_NEVER,
    EVENT_RECORDED,
    EVENT_CAPTURED
};

struct CUevent_st {
    struct shared shared;
    unsigned int flags;
    CUcontext ctx;
    enum event_state state;
    struct mark mark;
    struct stamp at;
    uint64_t capture; /* id of the capture that recorded it */
    struct nodes nodes;
};

/* Lets the event stand for this point of a stream or of a graph's launch. */
void event_set(CUevent event, const struct mark *mark,
               const struct stamp *stamp);

CUresult ev_create(CUevent *event_p, unsigned int flags);
CUresult ev_destroy(CUevent event);
CUresult ev_record(CUevent event, CUstream stream, unsigned int flags);
CUresult ev_query(CUevent event);
CUresult ev_sync(CUevent event);
CUresult ev_elapsed(float *ms_p, CUevent start, CUevent end);
CUresult strm_wait(CUstream stream, CUevent event, unsigned int flags);

#endif
