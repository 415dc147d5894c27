/*
 * slots.c - microbatches in flight and the slots they hold.
 *
 * A microbatch that found no slot is in flight all the same: its forwards
 * are counted, so that its backwards are told from those that are early.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/slots.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define HOLDS_NONE 0xff

/* What a microbatch of a chunk has in flight. */
struct flight {
    uint32_t waiting; /* forwards whose backward has not run */
    uint8_t slot;     /* HOLDS_NONE: none */
};

struct chunk {
    uint64_t free; /* bit i: slot i */
    uint32_t top;  /* one more than the largest microbatch of this step */
    struct flight *flights; /* GH_MAX_MICROBATCHES */
    struct gh_slot slots[GH_MAX_SLOTS];
};

struct gh_slots {
    uint64_t all;
    uint32_t n_chunks;
    uint32_t max_slots;
    uint32_t n_segments;
    uint8_t *waits; /* [segment][slot] */
    struct chunk chunks[];
};

static void reset(struct gh_slots *slots, struct chunk *chunk)
{
    chunk->free = slots->all;
    for (uint32_t m = 0; m < chunk->top; m++) {
        chunk->flights[m] = (struct flight){ 0, HOLDS_NONE };
    }
    chunk->top = 0;
}

gh_status gh_slots_create(uint32_t n_chunks, uint32_t n_segments,
                          uint32_t max_slots, struct gh_slots **slots_p,
                          gh_error *err)
{
    struct gh_slots *slots;

    slots = calloc(1, sizeof(*slots) + n_chunks * sizeof(slots->chunks[0]));
    if (slots == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for slots");
    }
    slots->all = max_slots == 64 ? UINT64_MAX : (UINT64_C(1) << max_slots) - 1;
    slots->n_chunks = n_chunks;
    slots->max_slots = max_slots;
    slots->n_segments = n_segments;
    slots->waits = calloc(n_segments, max_slots);
    if (slots->waits == NULL) {
        goto err_slots;
    }
    for (uint32_t i = 0; i < n_chunks; i++) {
        struct chunk *chunk = &slots->chunks[i];

        chunk->flights = calloc(GH_MAX_MICROBATCHES, sizeof(struct flight));
        if (chunk->flights == NULL) {
            goto err_slots;
        }
        chunk->top = GH_MAX_MICROBATCHES;
        reset(slots, chunk);
    }
    *slots_p = slots;
    return GH_OK;

err_slots:
    gh_slots_destroy(slots);
    return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for slots");
}

void gh_slots_destroy(struct gh_slots *slots)
{
    if (slots == NULL) {
        return;
    }
    for (uint32_t i = 0; i < slots->n_chunks; i++) {
        free(slots->chunks[i].flights);
    }
    free(slots->waits);
    free(slots);
}

static uint32_t slot_of(const struct flight *flight)
{
    return flight->slot == HOLDS_NONE ? GH_SLOT_NONE : flight->slot;
}

uint32_t gh_slots_take(struct gh_slots *slots, uint32_t chunk_index,
                       uint32_t microbatch, bool *fresh_p)
{
    struct chunk *chunk = &slots->chunks[chunk_index];
    struct flight *flight = &chunk->flights[microbatch];

    *fresh_p = false;
    if (flight->slot != HOLDS_NONE || flight->waiting != 0 ||
        chunk->free == 0) {
        return slot_of(flight);
    }

    /* The lowest free one: the fewest slots are ever used and recorded. */
    flight->slot = (uint8_t)__builtin_ctzll(chunk->free);
    chunk->free &= chunk->free - 1;
    if (microbatch >= chunk->top) {
        chunk->top = microbatch + 1;
    }
    *fresh_p = true;
    return flight->slot;
}

uint32_t gh_slots_find(const struct gh_slots *slots, uint32_t chunk,
                       uint32_t microbatch)
{
    return slot_of(&slots->chunks[chunk].flights[microbatch]);
}

static uint8_t *waits_at(const struct gh_slots *slots, uint32_t segment,
                         uint32_t slot)
{
    return &slots->waits[(size_t)segment * slots->max_slots + slot];
}

bool gh_slots_waits(const struct gh_slots *slots, uint32_t chunk,
                    uint32_t microbatch, uint32_t segment)
{
    const struct flight *flight = &slots->chunks[chunk].flights[microbatch];

    if (flight->slot == HOLDS_NONE) {
        return flight->waiting != 0;
    }
    return *waits_at(slots, segment, flight->slot) != 0;
}

void gh_slots_ran_forward(struct gh_slots *slots, uint32_t chunk_index,
                          uint32_t microbatch, uint32_t segment)
{
    struct chunk *chunk = &slots->chunks[chunk_index];
    struct flight *flight = &chunk->flights[microbatch];

    flight->waiting++;
    if (flight->slot != HOLDS_NONE) {
        *waits_at(slots, segment, flight->slot) = 1;
    } else if (microbatch >= chunk->top) {
        chunk->top = microbatch + 1;
    }
}

static void give_back(struct chunk *chunk, struct flight *flight)
{
    chunk->free |= UINT64_C(1) << flight->slot;
    flight->slot = HOLDS_NONE;
}

bool gh_slots_ran_backward(struct gh_slots *slots, uint32_t chunk_index,
                           uint32_t microbatch, uint32_t segment)
{
    struct chunk *chunk = &slots->chunks[chunk_index];
    struct flight *flight = &chunk->flights[microbatch];

    flight->waiting--;
    if (flight->slot == HOLDS_NONE) {
        return false;
    }
    *waits_at(slots, segment, flight->slot) = 0;
    if (flight->waiting != 0) {
        return false;
    }
    give_back(chunk, flight);
    return true;
}

void gh_slots_cancel(struct gh_slots *slots, uint32_t chunk_index,
                     uint32_t microbatch)
{
    struct chunk *chunk = &slots->chunks[chunk_index];
    struct flight *flight = &chunk->flights[microbatch];

    if (flight->slot != HOLDS_NONE && flight->waiting == 0) {
        give_back(chunk, flight);
    }
}

uint32_t gh_slots_end_step(struct gh_slots *slots)
{
    uint32_t held = 0;

    for (uint32_t i = 0; i < slots->n_chunks; i++) {
        struct chunk *chunk = &slots->chunks[i];

        held += (uint32_t)__builtin_popcountll(slots->all & ~chunk->free);
        reset(slots, chunk);
    }
    if (held != 0) {
        memset(slots->waits, 0, (size_t)slots->n_segments * slots->max_slots);
    }
    return held;
}

struct gh_slot *gh_slots_at(struct gh_slots *slots, uint32_t chunk,
                            uint32_t slot)
{
    return &slots->chunks[chunk].slots[slot];
}
