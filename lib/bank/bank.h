/*
 * bank.h - the entries of one bank, by segment, direction, variant and slot.
 *
 * A bank is a table, so an entry is found by computing an index.  The bank owns
 * and frees what its entries hold; lib/capture records and launches them.  All
 * banks share the blocks of device memory of banks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_BANK_H
#define GH_BANK_BANK_H

#include <graphhooks/bank.h>

#include "bank/blocks.h"
#include "bank/entry.h"

#define GH_DIRECTIONS 3                       /* of gh_direction */
#define GH_ROWS (GH_DIRECTIONS * GH_VARIANTS) /* of entries, in a segment */

struct gh_banks;
struct gh_comm;

struct gh_bank {
    /* [segment][direction][variant][slot].  A bank without graphs points to
     * gh_banks.blank, whose entries stay GH_ENTRY_NEW */
    struct gh_entry *entries;
    uint32_t n_segments, n_slots;
    struct gh_banks *banks; /* the banks of its session */
    uint32_t number;        /* its index there */
    bool admitted;          /* counts against GRAPHHOOKS_MAX_BANKS */
    uint8_t unpacked;       /* GH_REASON_PACKED where it has sequences: the
                               reason of a pass before they are given */
    uint64_t used;          /* the number of the pass with which its last
                               microbatch began */
    /* as declared */
    uint32_t cp_size, tokens, sequences;
    void *group;
    struct gh_comm *comm; /* the ranks that share its passes: lib/capture's;
                             NULL: none do */
    struct gh_bank *next_shared; /* the next bank with a comm, by number */
    char name[GH_BANK_NAME];
    struct gh_block **packed; /* [chunk][slot]; NULL: none yet */
    /* counted */
    uint32_t n_graphs;
    uint64_t recordings, replays, evictions;
    uint64_t bytes; /* of the blocks that it holds */
};

/* Makes the table of entries, all of them new, unless there is one. */
gh_status gh_bank_make(struct gh_bank *bank, gh_error *err);
/* Frees the table.  Its entries were cleared, or never used. */
void gh_bank_free(struct gh_bank *bank);

/* Frees what the entry holds and makes it new. */
void gh_bank_clear(struct gh_bank *bank, struct gh_entry *entry);
void gh_bank_clear_all(struct gh_bank *bank);
/* Destroys the graph, whether or not it runs; the entry is not launched any
 * more. */
void gh_entry_free_graph(struct gh_entry *entry,
                         const struct gh_memory *memory);
/* Frees the graph, which no longer runs, and the entry's host memory, but not
 * its block of device memory. */
void gh_entry_free(struct gh_entry *entry, const struct gh_memory *memory);

/* Takes a block for the inputs that an entry copies: at least `bytes`, and
 * `wish` bytes where it is new, which is what the largest bank needs. */
gh_status gh_bank_take(struct gh_bank *bank, struct gh_entry *entry,
                       struct gh_shelf *shelf, uint64_t bytes, uint64_t wish,
                       gh_error *err);

/* The bank in a message: "bank 2 (4096)", or "bank 2" if it has no name. */
struct gh_bank_label {
    char text[GH_BANK_NAME + 32];
};
struct gh_bank_label gh_bank_describe(const struct gh_bank *bank);

/* Where an entry is. */
struct gh_entry_position {
    uint32_t segment;
    gh_direction direction;
    uint32_t variant, slot;
};
struct gh_entry_position gh_bank_position_of(const struct gh_bank *bank,
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

/* The number of entries of a slot: one for each row of all segments. */
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
