/*
 * streams.h - the streams that a session has seen, all of one device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ORDER_STREAMS_H
#define GH_ORDER_STREAMS_H

#include "device/device.h"

#define GH_NO_STREAM ((void *)UINTPTR_MAX)

struct gh_streams {
    struct gh_device *dev; /* NULL: no driver, so no stream can be waited for */
    void **all;
    uint32_t n;
    uint32_t at; /* which of them the pass at hand is on */
    void *last;  /* all[at]; GH_NO_STREAM when that has to be found anew */
};

void gh_streams_init(struct gh_streams *streams, struct gh_device *dev);
void gh_streams_free(struct gh_streams *streams);

/* Finds the stream, or adds it once the driver has said whose it is. */
gh_status gh_streams_know(struct gh_streams *streams, void *stream,
                          gh_error *err);

/* Waits for every known stream that the host is not capturing. */
void gh_streams_quiesce(const struct gh_streams *streams);

#endif
