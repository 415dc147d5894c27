/*
 * order.h - "B after A" for something that several streams use in turn.
 *
 * What it is that they share, the buffers of a slot for one, is its owner's
 * business.  A user of it comes on one stream or on several; the next one
 * waits for all of them.  Within one user the host keeps the order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ORDER_ORDER_H
#define GH_ORDER_ORDER_H

#include "order/streams.h"

/* Streams with an event of their own; see order.c. */
#define GH_MAX_EDGES 64

struct gh_order {
    void *stream;    /* the last one that was used, or GH_NO_STREAM */
    uint64_t used;   /* bit i: this user was on stream i of the session */
    uint64_t marked; /* bit i: events[i] was recorded when it ended */
    void **events;   /* GH_MAX_EDGES; made when a second stream is seen */
    bool ordered;    /* this user follows the one before it */
    bool captured;   /* the owner's to set: the host has captured some of this
                        user's work, and launches that when it likes, so that
                        no other stream can follow */
};

void gh_order_init(struct gh_order *order);
void gh_order_free(struct gh_order *order, struct gh_device *dev);

/* A user begins where the last one was: nothing is to be waited for. */
static inline void gh_order_stay(struct gh_order *order)
{
    order->ordered = true;
    order->marked = 0;
}

/* Whether a new user on the stream, which the host does not capture, can wait
 * for all that was used. */
bool gh_order_reach(const struct gh_order *order,
                    const struct gh_streams *streams, void *stream);

/* The next work is on the stream at hand, which is another than the last.  As
 * long as the user is not `ordered`, that was another user's, which is in
 * reach: it waits, so the host does not capture the stream at hand. */
gh_status gh_order_move(struct gh_order *order,
                        const struct gh_streams *streams, void *stream,
                        gh_error *err);

/* The user has ended: what is issued now on its streams is the last that the
 * next user waits for. */
void gh_order_end(struct gh_order *order, const struct gh_streams *streams);
/* What the session has issued on `from` comes before what follows on `onto`:
 * to wait for that one is enough. */
void gh_order_join(struct gh_order *order, const struct gh_streams *streams,
                   const void *from, void *onto);
/* It was cut short. */
void gh_order_cut(struct gh_order *order);

#endif
