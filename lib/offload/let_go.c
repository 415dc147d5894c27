/*
 * let_go.c - an instance lets go of what it has: its buffers, its block and its
 * loan.
 *
 * It does so when its last reader is issued, and when it is given up before.
 * Events keep the next user of that memory behind all that was issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move.h"

void gh_move_discard(struct gh_offload *o, void *address, uint64_t bytes,
                     void *stream, void *event)
{
    if (o->wipes) {
        gh_device_spoil(o->dev, address, bytes, 0xFF, stream, event);
    } else {
        gh_device_discard(o->dev, address, bytes, stream, event);
    }
}

static void let_block_go(struct gh_offload *o, struct gh_instance *i)
{
    if (i->block != NULL) {
        gh_pinned_give_back(&o->pinned, i->block);
        i->block = NULL;
    }
}

static void let_loan_go(struct gh_offload *o, struct gh_instance *i)
{
    if (i->loan != NULL) {
        gh_loans_end(&o->loans, i->loan);
        i->loan = NULL;
    }
}

void gh_move_cancel(struct gh_offload *o, struct gh_instance *i)
{
    if (i->out != NULL) {
        i->out->holder = NULL;
        i->out = NULL;
    }
    let_block_go(o, i);
    let_loan_go(o, i);
    i->state = GH_INSTANCE_IDLE;
}

void gh_move_end(struct gh_offload *o, struct gh_instance *i)
{
    if (i->back != NULL) {
        i->back->holder = NULL;
        i->back = NULL;
    }
    let_block_go(o, i);
    let_loan_go(o, i);
    i->state = GH_INSTANCE_RELEASED;
}

/* Without a slot, only this event orders one user of the instance's memory
 * after the other. */
gh_status gh_move_note_end(struct gh_offload *o, struct gh_instance *i,
                           gh_error *err)
{
    gh_status status = GH_OK;

    gh_move_discard(o, i->held, i->stays, i->stream, NULL);
    if (i->slot != GH_SLOT_NONE || i->stays == 0) {
        return GH_OK;
    }
    if (i->ended == NULL) {
        status = gh_device_event_create(o->dev, &i->ended, err);
    }
    return status == GH_OK
               ? gh_device_event_record(o->dev, i->ended, i->stream, err)
               : status;
}

/* ---- what is given up -------------------------------------------------- */

/* Orders the next writer of the buffer after the writers so far, and after what
 * was issued of the copy.  The next copy of the block comes after them too. */
static void let_out_go(struct gh_offload *o, const struct gh_instance *i)
{
    if (i->out != NULL) {
        (void)gh_device_event_record(o->dev, i->out->filled, i->stream, NULL);
        (void)gh_device_event_wait(o->dev, o->out, i->out->filled, NULL);
        gh_move_discard(o, i->out->address, i->bytes, o->out, NULL);
        (void)gh_device_event_record(o->dev, i->out->read, o->out, NULL);
    }
    if (i->block != NULL) {
        (void)gh_pinned_wait(&o->pinned, i->block, o->out, NULL);
        (void)gh_pinned_mark(&o->pinned, i->block, o->out, NULL);
    }
}

/* The copy may have been issued in part, so the loan ends when its mark is
 * reached. */
static void let_lent_go(struct gh_offload *o, struct gh_instance *i)
{
    if (gh_device_event_record(o->dev, i->loan->mark, o->out, NULL) == GH_OK) {
        gh_loans_leave(&o->loans, i->loan, i->size_class);
    } else {
        gh_loans_lose(&o->loans, i->loan);
    }
    i->loan = NULL;
}

void gh_move_unload(struct gh_offload *o, struct gh_instance *i)
{
    if (i->back != NULL) {
        gh_move_discard(o, i->back->address, i->bytes, i->stream, NULL);
        (void)gh_device_event_record(o->dev, i->back->read, i->stream, NULL);
        i->back->holder = NULL;
        i->back = NULL;
    }
    i->state = GH_INSTANCE_AWAY;
}

void gh_move_abandon(struct gh_offload *o, struct gh_instance *i)
{
    if (i->state == GH_INSTANCE_QUEUED) {
        gh_move_unqueue(o, i);
    }
    if (i->out != NULL || (i->goes && i->loan != NULL)) {
        let_out_go(o, i);
    }
    if (i->goes && i->loan != NULL) {
        let_lent_go(o, i);
    }
    if (i->state == GH_INSTANCE_READING) {
        gh_move_unload(o, i);
    }
    if (i->slot == GH_SLOT_NONE) { /* a slot may be another one's by now */
        (void)gh_move_note_end(o, i, NULL);
    }
    gh_move_unlink(o, i);
    gh_move_end(o, i);
    gh_move_cancel(o, i);
}
