/*
 * slots.h - which set of buffers a microbatch uses, and until when.
 *
 * A slot is taken by the first forward pass of a microbatch in a chunk and
 * given back by the pass that leaves none of its forwards waiting, for the
 * backward or for the weight gradient that comes last, or by the end of the
 * step.  All calls are O(1) but gh_slots_end_step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_SLOTS_H
#define GH_PASS_SLOTS_H

#include <graphhooks/layer.h>

#include "order/order.h"

#include <stdbool.h>

#define GH_MAX_SLOTS 64

struct gh_bank;

/* One slot of one chunk.
 *
 * Within a microbatch the host orders its passes, as it must without the
 * library.  Which microbatch follows which in a slot is the library's choice,
 * so that order is its to keep: the first pass of a flight waits for every
 * stream that the flight before it was on, as a weight gradient on a stream of
 * its own may still read what the next forward overwrites. */
struct gh_slot {
    struct gh_order order; /* the order of flights, which share the slot's
                              buffers */
    uint64_t taken;        /* the number of the pass that took it */
    const struct gh_bank *bank; /* of the flight */
    uint8_t eager;         /* why no pass of the flight has a graph; packed.c */
    uint64_t packed;       /* `taken`, when that was for its sequences, which
                              come before its first pass */
};

static inline bool gh_slot_is_packed(const struct gh_slot *slot)
{
    return slot->packed == slot->taken;
}

/* What a microbatch of a chunk has in flight. */
struct gh_flight {
    uint32_t waiting; /* forwards whose last pass has not run */
    uint8_t slot;     /* GH_FLIGHT_NO_SLOT: none */
    uint8_t reason;   /* without a slot: why, as its first pass found out */
    bool slotless;    /* its sequences came before its first pass, and found no
                      slot: it gets none, also where one is free by then */
    uint64_t began;   /* and the number of that pass */
};
#define GH_FLIGHT_NO_SLOT 0xff

struct gh_slots_chunk {
    uint64_t free; /* bit i: slot i */
    uint32_t top;  /* one more than the largest microbatch of this step */
    struct gh_flight *flights; /* GH_MAX_MICROBATCHES */
    struct gh_slot slots[GH_MAX_SLOTS];
};

struct gh_slots {
    uint64_t all;
    uint32_t n_chunks;
    uint32_t max_slots;
    uint32_t n_segments;
    uint8_t *waits; /* [segment][slot]: the direction that comes next */
    struct gh_slots_chunk chunks[];
};

gh_status gh_slots_create(uint32_t n_chunks, uint32_t n_segments,
                          uint32_t max_slots, struct gh_slots **slots_p,
                          gh_error *err);
void gh_slots_destroy(struct gh_slots *slots);

/* The microbatch has just taken a slot and gets the next free one instead.
 * NULL: there is none, and it holds no slot. */
struct gh_slot *gh_slots_take_another(struct gh_slots *slots, uint32_t chunk,
                                      uint32_t microbatch, uint32_t *index_p);

/* A pass was given up: gives the slot back if nothing else has run in it. */
void gh_slots_cancel(struct gh_slots *slots, uint32_t chunk,
                     uint32_t microbatch);

/* Whether no microbatch holds one. */
bool gh_slots_are_free(const struct gh_slots *slots);

/* The microbatch has been given its sequences, in its slot or without one. */
void gh_slots_note_packed(struct gh_slots *slots, uint32_t chunk,
                          uint32_t microbatch);

/* Every microbatch loses its slot; returns how many still had one. */
uint32_t gh_slots_end_step(struct gh_slots *slots);

/* ---- the step path, inline: a call would cost more than what it does ---- */

/* How a pass stands to its microbatch. */
enum gh_slots_found {
    GH_SLOTS_HELD,     /* the microbatch holds a slot */
    GH_SLOTS_FRESH,    /* it has taken one just now */
    GH_SLOTS_NONE,     /* it is in flight without one */
    GH_SLOTS_REPEATED, /* a forward that waits for its backward, once more */
    GH_SLOTS_EARLY     /* another direction than the one that comes next */
};

static inline struct gh_slot *gh_slots_at(struct gh_slots *slots,
                                          uint32_t chunk, uint32_t slot)
{
    return &slots->chunks[chunk].slots[slot];
}

static inline uint8_t *gh_slots_waits(const struct gh_slots *slots,
                                      uint32_t segment, uint32_t slot)
{
    return &slots->waits[(size_t)segment * slots->max_slots + slot];
}

/* The lowest free one: the fewest slots are ever used and recorded. */
static inline uint32_t gh_slots_take(struct gh_slots_chunk *chunk,
                                     uint32_t microbatch)
{
    const uint32_t slot = (uint32_t)__builtin_ctzll(chunk->free);

    chunk->free &= chunk->free - 1;
    chunk->flights[microbatch].slot = (uint8_t)slot;
    if (microbatch >= chunk->top) {
        chunk->top = microbatch + 1;
    }
    return slot;
}

/* A pass begins.  Unless it is HELD or FRESH, *index_p is GH_SLOT_NONE and
 * the result NULL. */
static inline struct gh_slot *
gh_slots_enter(struct gh_slots *slots, uint32_t chunk_index,
               uint32_t microbatch, uint32_t segment, gh_direction direction,
               uint32_t *index_p, enum gh_slots_found *found_p)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    const struct gh_flight *flight = &chunk->flights[microbatch];

    if (flight->slot != GH_FLIGHT_NO_SLOT) {
        if (*gh_slots_waits(slots, segment, flight->slot) == direction) {
            *index_p = flight->slot;
            *found_p = GH_SLOTS_HELD;
            return &chunk->slots[flight->slot];
        }
        *found_p = direction == GH_FORWARD ? GH_SLOTS_REPEATED : GH_SLOTS_EARLY;
    } else if (flight->waiting != 0 || flight->slotless) {
        /* Without a slot only the number of forwards is known.  A microbatch
         * gets no slot in the middle of its flight. */
        *found_p = GH_SLOTS_NONE;
    } else if (direction != GH_FORWARD) {
        *found_p = GH_SLOTS_EARLY;
    } else if (chunk->free == 0) {
        *found_p = GH_SLOTS_NONE;
    } else {
        *index_p = gh_slots_take(chunk, microbatch);
        *found_p = GH_SLOTS_FRESH;
        return &chunk->slots[*index_p];
    }
    *index_p = GH_SLOT_NONE;
    return NULL;
}

/* A pass without a slot begins; it may be the first of its flight. */
static inline void gh_slots_note_slotless(struct gh_slots *slots,
                                          uint32_t chunk_index,
                                          uint32_t microbatch, uint64_t pass,
                                          gh_reason reason)
{
    struct gh_flight *flight = &slots->chunks[chunk_index].flights[microbatch];

    if (flight->waiting == 0) {
        flight->began = pass;
        flight->reason = (uint8_t)reason;
    }
}

static inline gh_reason gh_slots_why_none(const struct gh_slots *slots,
                                          uint32_t chunk, uint32_t microbatch)
{
    return slots->chunks[chunk].flights[microbatch].reason;
}

static inline void gh_slots_ran_forward(struct gh_slots *slots,
                                        uint32_t chunk_index,
                                        uint32_t microbatch, uint32_t segment)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    struct gh_flight *flight = &chunk->flights[microbatch];

    flight->waiting++;
    if (flight->slot != GH_FLIGHT_NO_SLOT) {
        *gh_slots_waits(slots, segment, flight->slot) = GH_BACKWARD;
    } else if (microbatch >= chunk->top) {
        chunk->top = microbatch + 1;
    }
}

/* A data gradient has run, and its weight gradient is still to come. */
static inline void gh_slots_ran_dgrad(struct gh_slots *slots,
                                      uint32_t chunk_index, uint32_t microbatch,
                                      uint32_t segment)
{
    const struct gh_flight *flight =
        &slots->chunks[chunk_index].flights[microbatch];

    if (flight->slot != GH_FLIGHT_NO_SLOT) {
        *gh_slots_waits(slots, segment, flight->slot) = GH_WGRAD;
    }
}

static inline void gh_slots_give_back(struct gh_slots_chunk *chunk,
                                      struct gh_flight *flight)
{
    chunk->free |= UINT64_C(1) << flight->slot;
    flight->slot = GH_FLIGHT_NO_SLOT;
}

/* The last pass of the segment has run.  True: that gave the slot back. */
static inline bool gh_slots_ran_last(struct gh_slots *slots,
                                     uint32_t chunk_index, uint32_t microbatch,
                                     uint32_t segment)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    struct gh_flight *flight = &chunk->flights[microbatch];

    flight->waiting--;
    if (flight->slot == GH_FLIGHT_NO_SLOT) {
        flight->slotless = false; /* `waiting` says whether it goes on */
        return false;
    }
    *gh_slots_waits(slots, segment, flight->slot) = GH_FORWARD;
    if (flight->waiting != 0) {
        return false;
    }
    gh_slots_give_back(chunk, flight);
    return true;
}

#endif
