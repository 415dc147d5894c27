/*
 * kernel.c - an exchange by one kernel, which writes all parts into the windows
 * of the peers.
 *
 * The kernel sets all flags right after its last byte, and waits for the parts
 * of the others.  So there is no border between a copy and a flag, which takes
 * longer than a small part.  Few blocks run, and with them a few
 * multiprocessors compute nothing.  state.h says what the flags mean.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/state.h"

static void add_own(gh_exchange *x, const gh_exchange_op *op)
{
    const gh_exchange_part part = gh_exchange_part_of(x, op, x->rank);
    char *to = (char *)x->window + op->window_offset + part.recv_offset;
    const char *from = (const char *)op->send + part.send_offset;

    if (part.send_bytes != 0 && to != from) {
        gh_device_sends_add(x->sends, to, from, part.send_bytes, NULL);
        x->stats.own_bytes += part.send_bytes;
    }
}

static void add(gh_exchange *x, const gh_exchange_op *op, uint32_t rank)
{
    const gh_exchange_part part = gh_exchange_part_of(x, op, rank);

    gh_device_sends_add(
        x->sends,
        (char *)x->peers[rank].window + op->window_offset + part.peer_offset,
        (const char *)op->send + part.send_offset, part.send_bytes,
        gh_flag_at(x, gh_flag_of_arrival(op), rank));
    x->stats.copied_bytes += part.send_bytes;
}

static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    const enum gh_flag arrival = gh_flag_of_arrival(op);
    gh_status status = gh_flags_say_ready(x, op, err);
    bool waits;

    x->stats.kernel_calls++;
    if (status == GH_OK) {
        status = gh_flags_wait_ready(x, op, err);
    }
    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 1; i < x->n; i++) {
        add(x, op, gh_exchange_peer(x, i));
    }
    add_own(x, op);
    waits = gh_device_sends_wait(x->dev, x->sends, gh_flags_row(x, arrival),
                                 x->rank, x->n);
    status = gh_device_sends_launch(x->dev, x->sends, op->stream, err);
    return status == GH_OK && !waits
               ? gh_flags_wait(x, arrival, op->stream, err)
               : status;
}

const struct gh_exchange_ops gh_exchange_kernel = {
    .name = "kernel",
    .by = "a kernel",
    .issue = issue,
    GH_EXCHANGE_BY_FLAGS,
};
