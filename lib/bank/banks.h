/*
 * banks.h - the banks of a session, and what they share.
 *
 * A bank is the graphs of one CP size and capacity.  Number 0 is there from the
 * start, as declared by nobody.  As many banks have graphs at once as
 * GRAPHHOOKS_MAX_BANKS allows: for one more, the least recently used goes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_BANKS_H
#define GH_BANK_BANKS_H

#include "bank/bank.h"
#include "bank/retired.h"

struct gh_banks {
    struct gh_bank **all;
    uint32_t n;
    uint32_t n_segments, n_slots, n_chunks;
    uint32_t most;        /* GRAPHHOOKS_MAX_BANKS */
    uint32_t n_admitted;
    uint32_t most_tokens; /* of any bank that was declared */
    struct gh_entry *blank; /* those of a bank without any: new for ever */
    struct gh_shelf *shelves; /* [chunk][slot] */
    struct gh_memory *memory;
    uint64_t n_nodes; /* in all graphs that are ready */
    struct gh_retired *retired;
};

/* `memory`, with its streams and its host, must outlive the banks. */
gh_status gh_banks_create(struct gh_banks *banks, uint32_t n_chunks,
                          uint32_t n_segments, uint32_t n_slots, uint32_t most,
                          struct gh_memory *memory, gh_error *err);
/* Clears all that is there.  No graph runs any more. */
void gh_banks_clear(struct gh_banks *banks);
/* They are clear, or were never used. */
void gh_banks_free(struct gh_banks *banks);

gh_status gh_banks_add(struct gh_banks *banks, const gh_bank_desc *desc,
                       uint32_t *number_p, gh_error *err);

/* Lets the bank have graphs, of which there are fewer than `most`. */
gh_status gh_banks_admit(struct gh_banks *banks, struct gh_bank *bank,
                         gh_error *err);
/* Takes its graphs from a bank that no flight uses, and `n` objects with them
 * that they read: they are destroyed, and the objects released, when no launch
 * can still run.  Takes over `objects`, which may be NULL. */
void gh_banks_evict(struct gh_banks *banks, struct gh_bank *bank,
                    void **objects, uint32_t n);

/* Destroys all graphs of the library's, those of evicted banks too, whether or
 * not they run.  Nothing is launched any more. */
void gh_banks_stop(struct gh_banks *banks);

/* Whose entry it is. */
const struct gh_bank *gh_banks_whose(const struct gh_banks *banks,
                                     const struct gh_entry *entry);

/* What the bank takes in the memory of the largest that is declared, where
 * sizes grow with tokens. */
uint64_t gh_banks_scale(const struct gh_banks *banks,
                        const struct gh_bank *bank, uint64_t bytes);

static inline struct gh_shelf *gh_banks_shelf(const struct gh_banks *banks,
                                              uint32_t chunk, uint32_t slot)
{
    return &banks->shelves[(size_t)chunk * banks->n_slots + slot];
}

#endif
