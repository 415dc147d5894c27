/*
 * banks.h - the banks of a session, and what they share.
 *
 * A bank holds the graphs of one CP size and capacity.  Bank 0 always exists.
 * At most GRAPHHOOKS_MAX_BANKS banks have graphs at the same time: for one
 * more, the least recently used bank is evicted.
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
    uint32_t most_tokens; /* the most of any declared bank */
    struct gh_entry *blank; /* the entries of every bank without graphs: they
                               stay GH_ENTRY_NEW */
    struct gh_shelf *shelves; /* [chunk][slot] */
    struct gh_memory *memory;
    uint64_t n_nodes; /* in all graphs that are ready */
    struct gh_retired *retired;
};

/* `memory`, its streams and its host outlive the banks. */
gh_status gh_banks_create(struct gh_banks *banks, uint32_t n_chunks,
                          uint32_t n_segments, uint32_t n_slots, uint32_t most,
                          struct gh_memory *memory, gh_error *err);
/* Frees all graphs and device memory.  No graph runs any more. */
void gh_banks_clear(struct gh_banks *banks);
/* Frees the banks, which were cleared or never used. */
void gh_banks_free(struct gh_banks *banks);

gh_status gh_banks_add(struct gh_banks *banks, const gh_bank_desc *desc,
                       uint32_t *number_p, gh_error *err);

/* Lets the bank have graphs.  Fewer than `most` banks have some. */
gh_status gh_banks_admit(struct gh_banks *banks, struct gh_bank *bank,
                         gh_error *err);
/* Takes the graphs of a bank that no microbatch in flight uses.  The graphs are
 * destroyed, and the `n` objects that they read are released, once no launch
 * can still run.  Takes ownership of `objects`, which may be NULL. */
void gh_banks_evict(struct gh_banks *banks, struct gh_bank *bank,
                    void **objects, uint32_t n);

/* Destroys all graphs, those of evicted banks too, whether or not they run.
 * Nothing is launched any more. */
void gh_banks_stop(struct gh_banks *banks);

/* What the blocks of all shelves held is lost. */
void gh_banks_forget_writers(struct gh_banks *banks);

/* The bank that the entry belongs to. */
const struct gh_bank *gh_banks_whose(const struct gh_banks *banks,
                                     const struct gh_entry *entry);

/* `bytes` of the bank, scaled to the tokens of the largest declared bank. */
uint64_t gh_banks_scale(const struct gh_banks *banks,
                        const struct gh_bank *bank, uint64_t bytes);

static inline struct gh_shelf *gh_banks_shelf(const struct gh_banks *banks,
                                              uint32_t chunk, uint32_t slot)
{
    return &banks->shelves[(size_t)chunk * banks->n_slots + slot];
}

#endif
