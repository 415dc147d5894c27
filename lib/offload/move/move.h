/*
 * move.h - the copies of an instance, and who waits for what.
 *
 * Every edge is an event of one buffer or one block, never one for all:
 *
 *     copy out        waits for filled (out) and for the block's last copy
 *     next writer     waits for read (out)
 *     copy back       waits for the block's last copy, which is its own copy
 *                     out, and for read (back)
 *     reader          waits for filled (back)
 *
 * With GRAPHHOOKS_OFFLOAD_APART a copy out also waits for the exchange that was
 * issued last.  All ranks issue exchanges in one order, so an exchange waits, on
 * whatever rank, only for copies that wait for earlier ones.
 *
 * A copy out of the host's own memory has no buffer: the mark of its loan is
 * both filled and read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_MOVE_H
#define GH_OFFLOAD_MOVE_H

#include "offload/groups/state.h"

/* The buffer that a group has in a slot, always the same: a flight after the
 * other goes on round the ring. */
static inline struct gh_ring_buffer *
gh_ring_buffer_of(const struct gh_ring *ring, const struct gh_group *group,
                  uint32_t slot)
{
    const uint64_t turn =
        slot == GH_SLOT_NONE ? 0 : (uint64_t)slot * group->size_class->n_groups;

    return ring->buffers[(group->ordinal + turn) % ring->n_indexed];
}

/* ---- copy_out.c -------------------------------------------------------- */

/* A group is about to be written: a block for it, and its buffer in `out`. */
gh_status gh_move_begin(struct gh_offload *offload,
                        struct gh_instance *instance,
                        struct gh_ring_buffer *out, uint64_t bytes,
                        gh_error *err);

/* Its `out` is recorded as filled: the copy is issued, or queued.  `later`: it
 * is queued in any case, as the buffer is still looked at. */
gh_status gh_move_out(struct gh_offload *offload, struct gh_instance *instance,
                      bool later, gh_error *err);
/* The same after a launch, which no failure can undo: a copy that fails is
 * queued, and whoever flushes says why. */
void gh_move_out_or_queue(struct gh_offload *offload,
                          struct gh_instance *instance);
/* Issues all that is queued. */
gh_status gh_move_flush(struct gh_offload *offload, gh_error *err);

/* ---- apart.c ----------------------------------------------------------- */

/* The next copy out begins after what is on the stream. */
void gh_move_behind(struct gh_offload *offload, void *stream);
/* The stream of copies out waits for that, once. */
gh_status gh_move_stay_behind(struct gh_offload *offload, gh_error *err);

/* ---- copy_back.c ------------------------------------------------------- */

/* The copy back into the buffer is issued, unless it was.  No commit waits: a
 * backward begins with a flush. */
gh_status gh_move_back(struct gh_offload *offload, struct gh_instance *instance,
                       struct gh_ring_buffer *back, bool ahead, gh_error *err);

/* Copies back once more into the same buffer, after what is on the stream, as
 * that may have written there. */
void gh_move_again(struct gh_offload *offload, struct gh_instance *instance,
                   void *stream);

/* ---- lists.c ----------------------------------------------------------- */

/* Puts the instance at the end of the order of commits, or takes it out. */
void gh_move_link(struct gh_offload *offload, struct gh_instance *instance);
void gh_move_unlink(struct gh_offload *offload, struct gh_instance *instance);
/* Its commit is not queued any more. */
void gh_move_unqueue(struct gh_offload *offload,
                     const struct gh_instance *instance);

/* ---- prefetch.c -------------------------------------------------------- */

/* Copies back those that come before it in its flight, as far as there are
 * buffers.  What fails is tried again when it is needed. */
void gh_move_prefetch(struct gh_offload *offload,
                      const struct gh_instance *instance);

/* ---- release.c --------------------------------------------------------- */

/* Nobody may read the memory any more, until it is written again; see
 * gh_device_discard().  In the first step every device fills it with ones,
 * which are NaN in each type of floating point.  So a host that reads where a
 * group was, or commits before it writes, has NaN from its first step on, and
 * not numbers that are wrong without a sign.  Later steps have no cost. */
void gh_move_discard(struct gh_offload *offload, void *address, uint64_t bytes,
                     void *stream, void *event);

/* The last reader is issued, and `back` recorded as read. */
void gh_move_end(struct gh_offload *offload, struct gh_instance *instance);
/* The instance's own memory was used last on its stream. */
void gh_move_note_end(struct gh_offload *offload, struct gh_instance *instance);

/* The group is not written after all, or for nobody: all that it has is
 * free. */
void gh_move_cancel(struct gh_offload *offload, struct gh_instance *instance);
/* Its reader was given up: it is on the host still. */
void gh_move_unload(struct gh_offload *offload, struct gh_instance *instance);
/* The instance goes no further: what was issued of it keeps its order, and
 * all that it has is free. */
void gh_move_abandon(struct gh_offload *offload, struct gh_instance *instance);

#endif
