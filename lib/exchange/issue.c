/*
 * issue.c - one exchange: what is checked, and by which kind it is issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
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

static bool fits(uint64_t at, uint64_t offset, uint64_t bytes, uint64_t room)
{
    return bytes == 0 ||
           (at <= room && offset <= room - at && bytes <= room - at - offset);
}

static gh_status check_part(const gh_exchange *x, const gh_exchange_op *op,
                            uint32_t rank, gh_error *err)
{
    const gh_exchange_part part = gh_exchange_part_of(x, op, rank);
    const uint64_t there = x->peers[rank].window_bytes;

    if (!fits(op->at, part.here, part.comes, x->desc.window_bytes)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op: what comes from rank %u is %llu bytes "
                       "at %llu, and the window has %llu: make it larger",
                       rank, (unsigned long long)part.comes,
                       (unsigned long long)(op->at + part.here),
                       (unsigned long long)x->desc.window_bytes);
    }
    if (!fits(op->at, part.there, part.bytes, there)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op: what goes to rank %u is %llu bytes at "
                       "%llu, and its window has %llu: make it larger",
                       rank, (unsigned long long)part.bytes,
                       (unsigned long long)(op->at + part.there),
                       (unsigned long long)there);
    }
    if (part.bytes != 0 && op->send == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.send is NULL, but %llu bytes go to rank "
                       "%u",
                       (unsigned long long)part.bytes, rank);
    }
    return GH_OK;
}

static gh_status check(const gh_exchange *x, const gh_exchange_op *op,
                       gh_error *err)
{
    gh_status status = GH_OK;
    gh_exchange_part own;

    if (op->parts == NULL && op->capacity > UINT64_MAX / x->n) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.capacity is %llu: too large for %u "
                       "ranks",
                       (unsigned long long)op->capacity, x->n);
    }
    for (uint32_t i = 0; i < x->n && status == GH_OK; i++) {
        status = check_part(x, op, i, err);
    }
    own = gh_exchange_part_of(x, op, x->rank);
    if (status == GH_OK && op->parts != NULL &&
        (own.bytes != own.comes || (own.bytes != 0 && own.there != own.here))) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.parts[%u], which this rank keeps, goes "
                       "and comes differently",
                       x->rank);
    }
    return status;
}

gh_status gh_exchange_keep(gh_exchange *x, const gh_exchange_op *op,
                           gh_error *err)
{
    const gh_exchange_part part = gh_exchange_part_of(x, op, x->rank);
    char *to = (char *)x->window + op->at + part.here;
    const char *from = (const char *)op->send + part.from;

    if (part.bytes == 0 || to == from) {
        return GH_OK;
    }
    x->stats.own_bytes += part.bytes;
    return gh_device_copy(x->dev, to, from, part.bytes, op->stream, err);
}

static gh_status by_nccl(gh_exchange *x, const gh_exchange_op *op,
                         gh_error *err)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const gh_exchange_part part = gh_exchange_part_of(x, op, i);

        x->parts[i] = (struct gh_nccl_part){
            .to = (const char *)op->send + part.from,
            .to_bytes = part.bytes,
            .from = (char *)x->window + op->at + part.here,
            .from_bytes = part.comes,
        };
        x->stats.nccl_bytes += i != x->rank ? part.bytes : 0;
    }
    return gh_nccl_exchange(x->nccl, x->desc.comm, x->parts, x->rank, x->n,
                            op->stream, x->timeout_s, err);
}

static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    gh_status status;

    if (x->kind == GH_EXCHANGE_COPY && x->n > 1) {
        return gh_exchange_by_copy(x, op, err);
    }
    status = gh_exchange_keep(x, op, err);
    return status == GH_OK && x->n > 1 ? by_nccl(x, op, err) : status;
}

gh_status gh_exchange_issue(gh_exchange *x, const gh_exchange_op *op,
                            gh_error *err)
{
    bool captured;
    gh_status status;
    gh_error why;

    if (x->over) {
        return gh_exchange_refuse(x, err);
    }
    status = check(x, op, err);
    if (status != GH_OK) {
        return status;
    }
    captured = gh_device_host_captures(x->dev, op->stream);
    x->stats.calls++;
    x->stats.captured += captured;
    status = issue(x, op, &why);
    if (status == GH_OK && !captured) {
        status = gh_device_event_record(x->dev, x->ended, op->stream, &why);
    }
    if (status == GH_OK) {
        return GH_OK;
    }
    if (captured) {
        return gh_fail(err, status, "%s", why.text);
    }
    gh_exchange_fail(x, &why, err);
    return status;
}
