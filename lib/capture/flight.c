/*
 * flight.c - a pass joins the flight of its microbatch: all but the step
 * path, which flight.h has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/flight.h"

#include "base/error.h"

void gh_flight_note_slotless(struct gh_capture *c)
{
    const uint32_t at = c->streams.at;

    c->slotless.used |= UINT64_C(1)
                        << (at < GH_MAX_EDGES - 1 ? at : GH_MAX_EDGES - 1);
}

/* Each direction comes once in a flight, and in its turn. */
static GH_COLD gh_status refuse_order(const gh_pass *pass, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: %s of segment %u, microbatch %u before "
                   "its %s, or a second time",
                   gh_direction_names[pass->direction], pass->segment,
                   pass->microbatch, gh_direction_names[pass->direction - 1]);
}

/* The backward reads what the first of two forwards has left in the slot. */
static GH_COLD gh_status refuse_second(const gh_pass *pass, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: a second forward of segment %u, microbatch "
                   "%u before its backward: set GH_PASS_FORWARD_ONLY on the "
                   "one that no backward follows, as on an evaluation",
                   pass->segment, pass->microbatch);
}

/* A weight gradient of a segment that has none, as hosts issue that do not know
 * GH_SEGMENT_HAS_WGRAD.  It runs eagerly, and nothing waits for it: in the slot
 * if the microbatch still has one. */
static GH_COLD gh_status go_beside(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err)
{
    const struct gh_flight *flight =
        &c->slots->chunks[c->open.chunk].flights[pass->microbatch];

    c->open.counted = false;
    if (flight->slot == GH_FLIGHT_NO_SLOT) {
        return GH_OK;
    }
    c->open.slot = flight->slot;
    c->open.at = gh_slots_at(c->slots, c->open.chunk, c->open.slot);
    return c->open.at->order.stream == pass->stream
               ? GH_OK
               : gh_flight_move(c, c->open.at, pass->stream, err);
}

/* `found` is not HELD or FRESH.  A pass out of turn is refused; one that finds
 * no slot runs eagerly, or is refused if the host has no buffers for that. */
GH_COLD gh_status gh_flight_without(struct gh_capture *c, const gh_pass *pass,
                                    enum gh_slots_found found, gh_error *err)
{
    if (pass->direction > c->fixed.fates[pass->segment].last) {
        return go_beside(c, pass, err);
    }
    if (found == GH_SLOTS_NONE) {
        gh_slots_note_slotless(c->slots, c->open.chunk, pass->microbatch,
                               c->open.number, GH_REASON_BUSY);
    }
    gh_flight_note_slotless(c);
    if (found == GH_SLOTS_EARLY) {
        return refuse_order(pass, err);
    }
    if (found == GH_SLOTS_REPEATED) {
        return refuse_second(pass, err);
    }
    if (!c->options.busy_fails) {
        return GH_OK;
    }
    return gh_fail(err, GH_ERR_BUSY,
                   "microbatch %u: all %u slots are in flight: raise "
                   "GRAPHHOOKS_MAX_SLOTS, or run fewer at once",
                   pass->microbatch, c->options.max_slots);
}

/* Passes of a flight share the memory of one bank. */
GH_COLD gh_status gh_flight_refuse_bank(const struct gh_capture *c,
                                        const gh_pass *pass, gh_error *err)
{
    return gh_fail(err, GH_ERR_INVALID,
                   "gh_pass.bank is %u, but microbatch %u began in bank %u, in "
                   "this chunk: all passes of a flight are of one bank",
                   pass->bank, pass->microbatch, c->open.at->bank->number);
}

GH_COLD gh_status gh_flight_move(struct gh_capture *c, struct gh_slot *slot,
                                 void *stream, gh_error *err)
{
    gh_status status =
        gh_order_move(&slot->order, &c->streams, stream, err);

    if (status != GH_OK) {
        gh_open_give_slot_up(c);
    }
    return status;
}

/* The stream can wait for none of the free slots.  That is an error where a
 * capture of the host's is the cause, which the host can end.  Without a
 * driver, or with GRAPHHOOKS_ENABLE=0, the pass goes without a slot, unless the
 * host has no buffers for that. */
static GH_COLD gh_status go_without(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err)
{
    if (c->dev != NULL && c->options.enabled) {
        return gh_fail(err, GH_ERR_STATE,
                       "microbatch %u: every free slot has work of a capture "
                       "of the host's, or was last on a stream that it is "
                       "capturing, which stream %p cannot wait for: end the "
                       "capture first, leave the hooks out of it, or raise "
                       "GRAPHHOOKS_MAX_SLOTS",
                       pass->microbatch, pass->stream);
    }
    if (c->options.busy_fails) {
        return gh_fail(err, GH_ERR_BUSY,
                       "microbatch %u: every free slot was last on another "
                       "stream, which cannot be waited for without a driver, "
                       "or while the host captures it: name a driver in "
                       "GRAPHHOOKS_DRIVER, raise GRAPHHOOKS_MAX_SLOTS, or use "
                       "one stream",
                       pass->microbatch);
    }
    gh_slots_note_slotless(c->slots, c->open.chunk, pass->microbatch,
                           c->open.number, GH_REASON_BUSY);
    return GH_OK;
}

/* The host captures the flight's first pass, and may launch its graph at any
 * time.  The next flight of a slot could not wait for that, so this one gets no
 * slot. */
GH_COLD gh_status gh_flight_leave_slot(struct gh_capture *c,
                                       const gh_pass *pass, gh_error *err)
{
    c->open.at->packed = UINT64_MAX; /* it may be an earlier flight's */
    gh_open_give_slot_up(c);
    c->open.slot = GH_SLOT_NONE;
    c->open.at = NULL;
    if (c->options.busy_fails) {
        return gh_fail(err, GH_ERR_BUSY,
                       "microbatch %u: the host is capturing its stream, and "
                       "what a host captures gets no slot: leave the hooks out "
                       "of that capture, or open without "
                       "GH_SESSION_BUSY_FAILS",
                       pass->microbatch);
    }
    gh_slots_note_slotless(c->slots, c->open.chunk, pass->microbatch,
                           c->open.number, GH_REASON_HOST_CAPTURE);
    return GH_OK;
}

/* Takes the first free slot that the stream can wait for. */
GH_COLD gh_status gh_flight_begin_elsewhere(struct gh_capture *c,
                                            const gh_pass *pass, gh_error *err)
{
    while (!gh_order_reach(&c->open.at->order, &c->streams, pass->stream)) {
        c->open.at = gh_slots_take_another(c->slots, c->open.chunk,
                                           pass->microbatch, &c->open.slot);
        if (c->open.at == NULL) {
            return go_without(c, pass, err);
        }
    }
    c->open.at->order.ordered = false;
    c->open.at->packed = UINT64_MAX; /* in case the move fails */
    return gh_flight_move(c, c->open.at, pass->stream, err);
}
