/*
 * copy.c - an exchange by copies into the peers' memory.
 *
 * No kernel runs.  The host's stream says that its window is free, and waits
 * until all others have said so, unless the call is in turn.  The first peer's
 * part is copied on the host's stream too; the other parts are copied on lanes,
 * which are streams of the exchange.  state.h says what the flags mean.
 *
 * Every stream set its flags before it waits for those of others.  So
 * streams that share one queue of the hardware do not block each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/state.h"

/* The stream of the i-th peer.  The host's stream is one of the lanes. */
static void *lane_of(const gh_exchange *x, uint32_t i, void *stream)
{
    const uint32_t lane = (i - 1) % (x->n_lanes + 1);

    return lane == 0 ? stream : x->lanes[lane - 1].stream;
}

static gh_status fork_lanes(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (x->n_lanes != 0) {
        status = gh_device_event_record(x->dev, x->begun, stream, err);
        x->stats.edges += 1 + x->n_lanes;
    }
    for (uint32_t i = 0; i < x->n_lanes && status == GH_OK; i++) {
        status = gh_device_event_wait(x->dev, x->lanes[i].stream, x->begun,
                                      err);
    }
    return status;
}

static gh_status put(gh_exchange *x, const gh_exchange_op *op, uint32_t i,
                     gh_error *err)
{
    const uint32_t to = gh_exchange_peer(x, i);
    const gh_exchange_part part = gh_exchange_part_of(x, op, to);
    void *stream = lane_of(x, i, op->stream);
    gh_status status = GH_OK;

    if (part.bytes != 0) {
        status = gh_device_put(x->dev,
                               (char *)x->peers[to].window + op->at +
                                   part.there,
                               (const char *)op->send + part.from, part.bytes,
                               stream, err);
        x->stats.copied_bytes += part.bytes;
    }
    return status == GH_OK ? gh_flags_set(x, gh_flag_of_arrival(op), to,
                                          stream, err)
                           : status;
}

static gh_status join_lanes(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    x->stats.edges += 2 * x->n_lanes;
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

/* The part that stays on this rank is copied before the wait for the others. */
static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    gh_status status = gh_flags_say_ready(x, op, err);

    if (status == GH_OK) {
        status = gh_exchange_keep(x, op, err);
    }
    if (status == GH_OK) {
        status = gh_flags_wait_ready(x, op, err);
    }
    if (status == GH_OK) {
        status = fork_lanes(x, op->stream, err);
    }
    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        status = put(x, op, i, err);
    }
    if (status == GH_OK) {
        status = gh_flags_wait(x, gh_flag_of_arrival(op), op->stream, err);
    }
    return status == GH_OK ? join_lanes(x, op->stream, err) : status;
}

const struct gh_exchange_ops gh_exchange_copy = {
    .name = "copy",
    .by = "copy engine",
    .issue = issue,
    GH_EXCHANGE_BY_FLAGS,
};
