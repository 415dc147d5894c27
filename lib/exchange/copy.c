/*
 * copy.c - an exchange by copies into the peers' memory.
 *
 * No kernel runs.  What goes to a peer is copied on a lane, a stream of the
 * exchange's, as soon as the peer has said that its window is free; the host's
 * stream waits for what comes, and for its own lanes.  state.h says what the
 * flags mean.
 *
 * The order of issue is one in which all could run: whoever says something
 * says it before it waits.  So streams that share one queue of the hardware
 * do not block each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/state.h"

/* The i-th peer, from the next rank on, so that not all begin with one. */
static uint32_t peer_at(const gh_exchange *x, uint32_t i)
{
    return (x->rank + i) % x->n;
}

static struct gh_lane *lane_of(gh_exchange *x, uint32_t i)
{
    return &x->lanes[(i - 1) % x->n_lanes];
}

static gh_status raise(gh_exchange *x, uint32_t *flag, void *stream,
                       gh_error *err)
{
    return gh_device_put(x->dev, flag, &x->flags[x->n].ready, sizeof(*flag),
                         stream, err);
}

static gh_status take(gh_exchange *x, uint32_t *flag, void *stream,
                      gh_error *err)
{
    gh_status status = gh_device_word_wait(x->dev, flag, 1, stream, err);

    return status == GH_OK
               ? gh_device_word_write(x->dev, flag, 0, stream, err)
               : status;
}

static gh_status fork_lanes(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = gh_device_event_record(x->dev, x->begun, stream, err);

    for (uint32_t i = 0; i < x->n_lanes && status == GH_OK; i++) {
        status = gh_device_event_wait(x->dev, x->lanes[i].stream, x->begun,
                                      err);
    }
    return status;
}

static gh_status say_ready(gh_exchange *x, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        struct gh_peer *peer = &x->peers[peer_at(x, i)];

        status = raise(x, &peer->flags[x->rank].ready, lane_of(x, i)->stream,
                       err);
    }
    return status;
}

static gh_status put(gh_exchange *x, const gh_exchange_op *op, uint32_t i,
                     gh_error *err)
{
    const uint32_t to = peer_at(x, i);
    const gh_exchange_part part = gh_exchange_part_of(x, op, to);
    struct gh_peer *peer = &x->peers[to];
    void *stream = lane_of(x, i)->stream;
    gh_status status = take(x, &x->flags[to].ready, stream, err);

    if (status == GH_OK && part.bytes != 0) {
        status = gh_device_put(x->dev,
                               (char *)peer->window + op->at + part.there,
                               (const char *)op->send + part.from, part.bytes,
                               stream, err);
        x->stats.copied_bytes += part.bytes;
    }
    return status == GH_OK ? raise(x, &peer->flags[x->rank].arrived, stream,
                                   err)
                           : status;
}

/* All are waited for before one is taken down: what is up says who has come,
 * when another does not. */
static gh_status receive(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        status = gh_device_word_wait(
            x->dev, &x->flags[peer_at(x, i)].arrived, 1, stream, err);
    }
    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        status = gh_device_word_write(
            x->dev, &x->flags[peer_at(x, i)].arrived, 0, stream, err);
    }
    return status;
}

static gh_status join_lanes(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < x->n_lanes && status == GH_OK; i++) {
        status = gh_device_event_record(x->dev, x->lanes[i].done,
                                        x->lanes[i].stream, err);
        if (status == GH_OK) {
            status = gh_device_event_wait(x->dev, stream, x->lanes[i].done,
                                          err);
        }
    }
    return status;
}

gh_status gh_exchange_by_copy(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err)
{
    gh_status status = fork_lanes(x, op->stream, err);

    if (status == GH_OK) {
        status = say_ready(x, err);
    }
    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        status = put(x, op, i, err);
    }
    if (status == GH_OK) {
        status = receive(x, op->stream, err);
    }
    return status == GH_OK ? join_lanes(x, op->stream, err) : status;
}
