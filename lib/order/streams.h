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
    uint32_t at; /* the stream of the current pass */
    void *last;  /* all[at]; GH_NO_STREAM: look it up again */
    /* Called before a wait for all of them, to give up those that wait for a
     * rank that does not come; NULL: nobody. */
    void (*rest)(void *user);
    void *user;
};

void gh_streams_init(struct gh_streams *streams, struct gh_device *dev);
void gh_streams_free(struct gh_streams *streams);

/* Finds the stream.  A new one is added once the driver says that it is of this
 * device. */
gh_status gh_streams_know(struct gh_streams *streams, void *stream,
                          gh_error *err);

/* Waits for every known stream that the host is not capturing. */
void gh_streams_quiesce(const struct gh_streams *streams);

#endif
