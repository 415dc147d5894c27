/*
 * issue.c - checks one exchange, and has its kind issue it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

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
    const uint64_t recv_at = op->window_offset + part.recv_offset;
    const uint64_t peer_at = op->window_offset + part.peer_offset;

    if (!fits(op->window_offset, part.recv_offset, part.recv_bytes,
              x->desc.window_bytes)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op: what comes from rank %u is %llu bytes "
                       "at %llu, and the window has %llu: make it larger",
                       rank, (unsigned long long)part.recv_bytes,
                       (unsigned long long)recv_at,
                       (unsigned long long)x->desc.window_bytes);
    }
    if (!fits(op->window_offset, part.peer_offset, part.send_bytes, there)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op: what goes to rank %u is %llu bytes at "
                       "%llu, and its window has %llu: make it larger",
                       rank, (unsigned long long)part.send_bytes,
                       (unsigned long long)peer_at, (unsigned long long)there);
    }
    if (part.send_bytes != 0 && op->send == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.send is NULL, but %llu bytes go to rank "
                       "%u",
                       (unsigned long long)part.send_bytes, rank);
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
        (own.send_bytes != own.recv_bytes ||
         (own.send_bytes != 0 && own.peer_offset != own.recv_offset))) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.parts[%u], which this rank keeps, goes "
                       "and comes differently",
                       x->rank);
    }
    return status;
}

/* A flag that is set twice is taken down once, so that ranks would wait for ever
 * or not at all.  Which graphs were launched since is not known here. */
static gh_status check_turn(const gh_exchange *x, const gh_exchange_op *op,
                            bool captured, gh_error *err)
{
    const uint32_t order = gh_exchange_order(op);
    const bool released = order == GH_EXCHANGE_RELEASED;

    if (captured || x->in_graphs) {
        return GH_OK;
    }
    if (released != x->released) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_exchange_op.flags is 0x%x, and "
                       "gh_exchange_release_window() was %scalled since the "
                       "call before: %s GH_EXCHANGE_RELEASED",
                       op->flags, x->released ? "" : "not ",
                       x->released ? "give" : "call it, or do not give");
    }
    if (order == 0 || released || order != x->turn) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_exchange_op.flags: the call before this one had turn %d "
                   "too: give turn %d, or none",
                   order == GH_EXCHANGE_TURN_1 ? 1 : 2,
                   order == GH_EXCHANGE_TURN_1 ? 2 : 1);
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
    status = check_turn(x, op, captured, err);
    if (status != GH_OK) {
        return status;
    }
    x->stats.calls++;
    x->stats.captured += captured;
    x->captures = captured;
    status = x->ops->issue(x, op, &why);
    if (status == GH_OK && !captured) {
        status = gh_device_event_record(x->dev, x->ended, op->stream, &why);
    }
    if (status == GH_OK) {
        x->in_graphs |= captured;
        x->turn = captured ? x->turn : gh_exchange_order(op);
        x->released = x->released && captured;
        return GH_OK;
    }
    if (captured) {
        return gh_fail(err, status, "%s", why.text);
    }
    gh_exchange_fail(x, &why, err);
    return status;
}

gh_status gh_exchange_issue_release(gh_exchange *x, void *stream, gh_error *err)
{
    const bool captured = gh_device_host_captures(x->dev, stream);
    gh_status status;
    gh_error why;

    if (x->over) {
        return gh_exchange_refuse(x, err);
    }
    if (x->released && !captured && !x->in_graphs) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_exchange_release_window: called since the call "
                       "before: once is enough");
    }
    x->captures = captured;
    status = x->ops->release_window != NULL
                 ? x->ops->release_window(x, stream, &why)
                 : GH_OK;
    if (status == GH_OK && !captured) {
        status = gh_device_event_record(x->dev, x->ended, stream, &why);
    }
    if (status == GH_OK) {
        x->in_graphs |= captured;
        x->released |= !captured;
    } else if (captured) {
        gh_fail(err, status, "%s", why.text);
    } else {
        gh_exchange_fail(x, &why, err);
    }
    return status;
}
