/*
 * copy.c - an exchange by copies into the peers' memory.
 *
 * No kernel runs.  The host's stream says that its window is free, and waits
 * until all others have said so, unless the call is in turn.  The first peer's
 * part is copied on the host's stream too; the other parts are copied on lanes,
 * which are streams of the exchange.  state.h says what the flags mean.
 *
 * Where several peers can get their parts in one call of the driver, they get
 * them so, then all flags in another one, on the host's stream alone.
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
        x->stats.event_waits += 1 + x->n_lanes;
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

    if (part.send_bytes != 0) {
        status = gh_device_put(x->dev,
                               (char *)x->peers[to].window + op->window_offset +
                                   part.peer_offset,
                               (const char *)op->send + part.send_offset,
                               part.send_bytes, stream, err);
        x->stats.copied_bytes += part.send_bytes;
    }
    return status == GH_OK ? gh_flags_set(x, gh_flag_of_arrival(op), to,
                                          stream, err)
                           : status;
}

/* Copies the parts of all peers, some in each call.  Where the driver does not
 * take one, all are to be copied again, in another way. */
static gh_status put_in_batches(gh_exchange *x, const gh_exchange_op *op,
                                bool *taken_p, gh_error *err)
{
    struct gh_copies_out copies = { 0 };
    gh_status status = GH_OK;
    uint64_t sent = 0;

    *taken_p = true;
    for (uint32_t i = 1; i < x->n && *taken_p && status == GH_OK; i++) {
        const uint32_t to = gh_exchange_peer(x, i);
        const gh_exchange_part part = gh_exchange_part_of(x, op, to);

        if (part.send_bytes != 0) {
            copies.to[copies.n] = (uintptr_t)x->peers[to].window +
                                  op->window_offset + part.peer_offset;
            copies.from[copies.n] = (uintptr_t)op->send + part.send_offset;
            copies.bytes[copies.n++] = part.send_bytes;
            sent += part.send_bytes;
        }
        if (copies.n == GH_COPIES_OUT || (i == x->n - 1 && copies.n != 0)) {
            status = gh_device_put_all(x->dev, &copies, true, op->stream,
                                       taken_p, err);
            x->stats.batch_copies += *taken_p;
            copies.n = 0;
        }
    }
    x->stats.copied_bytes += *taken_p ? sent : 0;
    return status;
}

static gh_status join_lanes(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    x->stats.event_waits += 2 * x->n_lanes;
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

static gh_status put_by_lanes(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err)
{
    gh_status status = fork_lanes(x, op->stream, err);

    for (uint32_t i = 1; i < x->n && status == GH_OK; i++) {
        status = put(x, op, i, err);
    }
    return status;
}

/* The part that stays on this rank is copied before the wait for the others. */
static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    gh_status status = gh_flags_say_ready(x, op, err);
    bool batched = false;

    if (status == GH_OK) {
        status = gh_exchange_keep(x, op, err);
    }
    if (status == GH_OK) {
        status = gh_flags_wait_ready(x, op, err);
    }
    if (status == GH_OK && gh_exchange_has_batches(x, op->stream)) {
        status = put_in_batches(x, op, &batched, err);
    }
    if (status == GH_OK) {
        status = batched ? gh_flags_set_all(x, gh_flag_of_arrival(op),
                                            op->stream, err)
                         : put_by_lanes(x, op, err);
    }
    if (status == GH_OK) {
        status = gh_flags_wait(x, gh_flag_of_arrival(op), op->stream, err);
    }
    return status == GH_OK && !batched ? join_lanes(x, op->stream, err)
                                       : status;
}

const struct gh_exchange_ops gh_exchange_copy = {
    .name = "copy",
    .by = "copy engine",
    .issue = issue,
    GH_EXCHANGE_BY_FLAGS,
};
