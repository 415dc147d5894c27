/*
 * bank.h - the entries of a session, by segment, direction, variant and slot.
 *
 * A table: to find one is to compute an index.  The bank owns what its entries
 * hold and frees it; who records and launches them is its caller's business.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_BANK_H
#define GH_BANK_BANK_H

#include "bank/entry.h"
#include "memory/memory.h"

#define GH_DIRECTIONS 3                       /* of gh_direction */
#define GH_ROWS (GH_DIRECTIONS * GH_VARIANTS) /* of entries, in a segment */

struct gh_bank {
    struct gh_entry *entries; /* [segment][direction][variant][slot] */
    uint32_t n_segments, n_slots;
    struct gh_memory *memory; /* of the entries' buffers */
    uint64_t n_nodes;         /* in all graphs that are ready */
};

/* `memory`, with its streams and its host, must outlive the bank. */
gh_status gh_bank_create(struct gh_bank *bank, uint32_t n_segments,
                         uint32_t n_slots, struct gh_memory *memory,
                         gh_error *err);
/* Its entries are clear, or were never used. */
void gh_bank_free(struct gh_bank *bank);

/* Frees what the entry holds and makes it new. */
void gh_bank_clear(struct gh_bank *bank, struct gh_entry *entry);
void gh_bank_clear_all(struct gh_bank *bank);

/* Where an entry is. */
struct gh_place {
    uint32_t segment;
    gh_direction direction;
    uint32_t variant, slot;
};
struct gh_place gh_bank_place_of(const struct gh_bank *bank,
                                 const struct gh_entry *entry);

static inline struct gh_entry *gh_bank_at(const struct gh_bank *bank,
                                          uint32_t segment,
                                          gh_direction direction,
                                          uint32_t variant, uint32_t slot)
{
    const size_t row =
        (segment * GH_DIRECTIONS + direction) * (size_t)GH_VARIANTS + variant;

    return &bank->entries[row * bank->n_slots + slot];
}

/* The entries of a segment follow each other: the first, and how many. */
static inline struct gh_entry *gh_bank_of_segment(const struct gh_bank *bank,
                                                  uint32_t segment,
                                                  uint32_t *n_p)
{
    *n_p = GH_ROWS * bank->n_slots;
    return gh_bank_at(bank, segment, GH_FORWARD, 0, 0);
}

/* Those of a slot, one for each row of all segments. */
static inline size_t gh_bank_rows(const struct gh_bank *bank)
{
    return (size_t)bank->n_segments * GH_ROWS;
}

static inline struct gh_entry *gh_bank_in_row(const struct gh_bank *bank,
                                              size_t row, uint32_t slot)
{
    return &bank->entries[row * bank->n_slots + slot];
}

#endif
