/*
 * flight.h - a pass joins the flight of its microbatch.
 *
 * The first pass of a flight takes a slot, which its stream must be able to
 * wait for.  What comes out of turn is refused, before anything changes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_FLIGHT_H
#define GH_CAPTURE_FLIGHT_H

#include "pass/pass.h"

/* `found` is not HELD or FRESH.  A pass out of turn is refused; one that finds
 * no slot runs eagerly, or is refused if the host has no buffers for that. */
gh_status gh_flight_without(struct gh_capture *c, const gh_pass *pass,
                            enum gh_slots_found found, gh_error *err);
/* Notes that a pass without a slot, on its stream, may read arrays of its
 * microbatch (packed.h). */
GH_ASIDE void gh_flight_note_slotless(struct gh_capture *c);
/* Gives the slot back, as the host captures the flight's first pass. */
gh_status gh_flight_leave_slot(struct gh_capture *c, const gh_pass *pass,
                               gh_error *err);
/* Begins a flight on another stream than the slot was last on, or in another
 * slot if the stream cannot wait for this one. */
gh_status gh_flight_begin_elsewhere(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err);
/* The error for a pass of another bank than its flight's. */
gh_status gh_flight_refuse_bank(const struct gh_capture *c, const gh_pass *pass,
                                gh_error *err);
/* Moves a slot to another stream. */
gh_status gh_flight_move(struct gh_capture *c, struct gh_slot *slot,
                         void *stream, gh_error *err);

/* ---- the step path, inline: a call would cost more than what it does ---- */

/* Begins the flight of a microbatch that has just taken its slot. */
static inline gh_status gh_flight_begin(struct gh_capture *c,
                                        const gh_pass *pass, gh_error *err)
{
    struct gh_slot *slot = c->open.at;
    gh_status status = GH_OK;

    if (gh_open_captured(c) == GH_CAPTURING_YES) {
        return gh_flight_leave_slot(c, pass, err);
    }
    if (slot->order.stream == pass->stream) {
        gh_order_stay(&slot->order);
    } else {
        status = gh_flight_begin_elsewhere(c, pass, err);
        slot = c->open.at;
    }
    if (status == GH_OK && slot != NULL) {
        slot->taken = c->open.number;
        slot->bank = c->open.bank;
        slot->eager = c->open.bank->unpacked;
        c->open.bank->used = c->open.number;
    }
    return status;
}

/* Sets open.slot and open.at; a pass may go without a slot.  GH_ERR_STATE and
 * GH_ERR_BUSY as gh_layer_enter(). */
static inline gh_status gh_flight_join(struct gh_capture *c,
                                       const gh_pass *pass, gh_error *err)
{
    enum gh_slots_found found;
    struct gh_slot *slot =
        gh_slots_enter(c->slots, c->open.chunk, pass->microbatch, pass->segment,
                       pass->direction, &c->open.slot, &found);

    if (slot == NULL) {
        return gh_flight_without(c, pass, found, err);
    }
    c->open.at = slot;
    if (found == GH_SLOTS_FRESH) {
        return gh_flight_begin(c, pass, err);
    }
    if (slot->bank != c->open.bank) {
        return gh_flight_refuse_bank(c, pass, err);
    }
    if (slot->order.stream == pass->stream) {
        return GH_OK;
    }
    return gh_flight_move(c, slot, pass->stream, err);
}

/* The pass is over: counts it for its microbatch.  No pass is open then. */
static inline void gh_flight_go_on(struct gh_capture *c, const gh_pass *pass)
{
    c->open.active = false;
    if (!c->open.counted) {
        return;
    }
    if (pass->direction == GH_FORWARD) {
        gh_slots_ran_forward(c->slots, c->open.chunk, pass->microbatch,
                             pass->segment);
    } else if (pass->direction != c->fixed.fates[pass->segment].last &&
               (pass->flags & GH_PASS_NO_WGRAD) == 0) {
        gh_slots_ran_dgrad(c->slots, c->open.chunk, pass->microbatch,
                           pass->segment);
    } else if (gh_slots_ran_last(c->slots, c->open.chunk, pass->microbatch,
                                 pass->segment)) {
        c->open.ended = c->streams.n > 1 ? c->open.at : NULL;
    }
}

#endif
