/*
 * release.c - an instance releases what it has: its buffers, its block and its
 * loan.
 *
 * It does so when its last reader is issued, and when it is given up before.
 * Events keep the next user of that memory behind all that was issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/move/move.h"

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
void gh_move_note_end(struct gh_offload *o, struct gh_instance *i)
{
    gh_move_discard(o, i->held, i->stays, i->stream, NULL);
    if (i->slot != GH_SLOT_NONE || i->stays == 0) {
        return;
    }
    if (i->ended == NULL) {
        (void)gh_device_event_create(o->dev, &i->ended, NULL);
    }
    gh_device_event_must_record(o->dev, i->ended, i->stream);
}

/* ---- what is given up -------------------------------------------------- */

/* Orders the next writer of the buffer after the writers so far, and after what
 * was issued of the copy.  The block orders its next copy by itself. */
static void let_out_go(struct gh_offload *o, const struct gh_instance *i)
{
    gh_device_event_must_record(o->dev, i->out->filled, i->stream);
    gh_device_event_must_wait(o->dev, o->out, i->out->filled);
    gh_move_discard(o, i->out->address, i->bytes, o->out, NULL);
    gh_device_event_must_record(o->dev, i->out->read, o->out);
}

/* The host's stream may copy a part of the memory, and the copy out may have
 * been issued in part, so the loan ends when its mark has come after both. */
static void let_lent_go(struct gh_offload *o, struct gh_instance *i)
{
    void *mark = i->loan->mark;
    gh_status status = gh_device_event_record(o->dev, mark, i->stream, NULL);

    if (status == GH_OK) {
        status = gh_device_event_wait(o->dev, o->out, mark, NULL);
    }
    if (status == GH_OK) {
        status = gh_device_event_record(o->dev, mark, o->out, NULL);
    }
    if (status == GH_OK) {
        gh_loans_leave(&o->loans, i->loan, i->size_class);
    } else {
        gh_loans_lose(&o->loans, i->loan);
    }
    i->loan = NULL;
}

/* A reader is on the host's stream, and a copy that nobody has read yet on that
 * of the copies back, which also waits for the reader before. */
void gh_move_unload(struct gh_offload *o, struct gh_instance *i)
{
    const bool is_read = i->state != GH_INSTANCE_BACK;
    void *stream = is_read ? i->stream : o->back;

    if (i->back != NULL) {
        if (!is_read) {
            gh_device_event_must_wait(o->dev, stream, i->back->read);
        }
        gh_move_discard(o, i->back->address, i->bytes, stream, NULL);
        gh_device_event_must_record(o->dev, i->back->read, stream);
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
    if (i->out != NULL) {
        let_out_go(o, i);
    }
    if (i->goes && i->loan != NULL) {
        let_lent_go(o, i);
    }
    if (i->back != NULL) {
        gh_move_unload(o, i);
    }
    if (i->slot == GH_SLOT_NONE) { /* a slot may be another one's by now */
        gh_move_note_end(o, i);
    }
    gh_move_unlink(o, i);
    gh_move_end(o, i);
    gh_move_cancel(o, i);
}
