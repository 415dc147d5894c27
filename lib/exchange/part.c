/*
 * part.c - the parts of one exchange, and the kind of a single rank, which
 * keeps its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/state.h"

gh_exchange_part gh_exchange_part_of(const gh_exchange *x,
                                     const gh_exchange_op *op, uint32_t rank)
{
    const uint64_t at = rank * op->capacity;

    return op->parts != NULL
               ? op->parts[rank]
               : (gh_exchange_part){ at, op->capacity, x->rank * op->capacity,
                                   at, op->capacity };
}

gh_status gh_exchange_keep(gh_exchange *x, const gh_exchange_op *op,
                           gh_error *err)
{
    const gh_exchange_part part = gh_exchange_part_of(x, op, x->rank);
    char *to = (char *)x->window + op->window_offset + part.recv_offset;
    const char *from = (const char *)op->send + part.send_offset;

    if (part.send_bytes == 0 || to == from) {
        return GH_OK;
    }
    x->stats.own_bytes += part.send_bytes;
    return gh_device_copy(x->dev, to, from, part.send_bytes, op->stream, err);
}

const struct gh_exchange_ops gh_exchange_alone = {
    .name = "alone",
    .issue = gh_exchange_keep,
};
