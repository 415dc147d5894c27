/*
 * slots.c - microbatches in flight and the slots they hold: all but the
 * step path, which slots.h has.
 *
 * A microbatch that found no slot is in flight all the same: its forwards
 * are counted, so that its later passes are told from those that are early.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pass/slots.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void reset(struct gh_slots *slots, struct gh_slots_chunk *chunk)
{
    chunk->free = slots->all;
    for (uint32_t m = 0; m < chunk->top; m++) {
        chunk->flights[m] = (struct gh_flight){ .slot = GH_FLIGHT_NO_SLOT };
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
        struct gh_slots_chunk *chunk = &slots->chunks[i];

        chunk->flights = calloc(GH_MAX_MICROBATCHES, sizeof(struct gh_flight));
        if (chunk->flights == NULL) {
            goto err_slots;
        }
        chunk->top = GH_MAX_MICROBATCHES;
        reset(slots, chunk);
        for (uint32_t k = 0; k < GH_MAX_SLOTS; k++) {
            gh_order_init(&chunk->slots[k].order);
            chunk->slots[k].packed = UINT64_MAX;
        }
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

struct gh_slot *gh_slots_take_another(struct gh_slots *slots,
                                      uint32_t chunk_index, uint32_t microbatch,
                                      uint32_t *index_p)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    struct gh_flight *flight = &chunk->flights[microbatch];
    const uint64_t later = chunk->free & ~UINT64_C(0) << flight->slot;

    gh_slots_give_back(chunk, flight);
    *index_p = GH_SLOT_NONE;
    if (later == 0) {
        return NULL;
    }
    *index_p = (uint32_t)__builtin_ctzll(later);
    chunk->free &= ~(UINT64_C(1) << *index_p);
    flight->slot = (uint8_t)*index_p;
    return &chunk->slots[*index_p];
}

void gh_slots_cancel(struct gh_slots *slots, uint32_t chunk_index,
                     uint32_t microbatch)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    struct gh_flight *flight = &chunk->flights[microbatch];

    if (flight->slot != GH_FLIGHT_NO_SLOT && flight->waiting == 0 &&
        !gh_slot_is_packed(&chunk->slots[flight->slot])) {
        gh_slots_give_back(chunk, flight);
    }
}

void gh_slots_note_packed(struct gh_slots *slots, uint32_t chunk_index,
                          uint32_t microbatch)
{
    struct gh_slots_chunk *chunk = &slots->chunks[chunk_index];
    struct gh_flight *flight = &chunk->flights[microbatch];

    flight->slotless = flight->slot == GH_FLIGHT_NO_SLOT;
    if (microbatch >= chunk->top) {
        chunk->top = microbatch + 1;
    }
}

bool gh_slots_are_free(const struct gh_slots *slots)
{
    for (uint32_t i = 0; i < slots->n_chunks; i++) {
        if (slots->chunks[i].free != slots->all) {
            return false;
        }
    }
    return true;
}

uint32_t gh_slots_end_step(struct gh_slots *slots)
{
    uint32_t held = 0;

    for (uint32_t i = 0; i < slots->n_chunks; i++) {
        struct gh_slots_chunk *chunk = &slots->chunks[i];

        held += (uint32_t)__builtin_popcountll(slots->all & ~chunk->free);
        reset(slots, chunk);
    }
    if (held != 0) {
        memset(slots->waits, 0, (size_t)slots->n_segments * slots->max_slots);
    }
    return held;
}
