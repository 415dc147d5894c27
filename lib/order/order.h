/*
 * order.h - "B after A" for something that several streams use in turn.
 *
 * The owner knows what is shared, such as the buffers of a slot.  A user works
 * on one stream or on several, and the next user waits for all of them.  The
 * host keeps the order within one user's work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_ORDER_ORDER_H
#define GH_ORDER_ORDER_H

#include "base/path.h"
#include "order/streams.h"

/* Bits of gh_order.used; see order.c. */
#define GH_MAX_EDGES 64

struct gh_order {
    void *stream;    /* the last stream used, or GH_NO_STREAM */
    uint64_t used;   /* bit i: this user was on the session's stream i */
    uint64_t marked; /* bit i: events[i] was recorded at its end */
    void **events;   /* GH_MAX_EDGES; made for a second stream */
    bool ordered;    /* this user follows the one before it */
    bool captured;   /* set by the owner: the host has captured some of this
                        user's work, and may launch it at any time, so no other
                        stream can follow */
};

void gh_order_init(struct gh_order *order);
void gh_order_free(struct gh_order *order, struct gh_device *dev);

/* A user begins on the stream of the last one, so it waits for nothing. */
static inline void gh_order_stay(struct gh_order *order)
{
    order->ordered = true;
    order->marked = 0;
}

/* Whether a new user on the stream can wait for everything that was used.  The
 * host must not be capturing the stream. */
bool gh_order_reach(const struct gh_order *order,
                    const struct gh_streams *streams, void *stream);

/* The next work is on the session's current stream, which is not the last one.
 * If the user is not `ordered` yet, the stream waits for the user before, which
 * must be in reach; the host must not be capturing the stream then. */
GH_ASIDE gh_status gh_order_move(struct gh_order *order,
                                 const struct gh_streams *streams,
                                 void *stream, gh_error *err);

/* The user has ended.  The next user waits for what is on its streams now. */
GH_ASIDE void gh_order_end(struct gh_order *order, const struct gh_streams *streams);
/* Whatever the session issued on `from` comes before what follows on `onto`, so
 * it is enough to wait for `onto`. */
void gh_order_join(struct gh_order *order, const struct gh_streams *streams,
                   const void *from, void *onto);
/* The user was cut short. */
void gh_order_cut(struct gh_order *order);

#endif
