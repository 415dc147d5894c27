/*
 * banks.c - see banks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/banks.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t n_shelves(const struct gh_banks *banks)
{
    return (size_t)banks->n_chunks * banks->n_slots;
}

static gh_status add(struct gh_banks *banks, struct gh_bank **bank_p,
                     gh_error *err)
{
    struct gh_bank **all =
        realloc(banks->all, (banks->n + (size_t)1) * sizeof(*all));
    struct gh_bank *bank = calloc(1, sizeof(*bank));

    if (all != NULL) {
        banks->all = all;
    }
    if (all == NULL || bank == NULL) {
        free(bank);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a bank");
    }
    bank->banks = banks;
    bank->entries = banks->blank;
    bank->n_segments = banks->n_segments;
    bank->n_slots = banks->n_slots;
    bank->number = banks->n;
    banks->all[banks->n++] = bank;
    *bank_p = bank;
    return GH_OK;
}

gh_status gh_banks_create(struct gh_banks *banks, uint32_t n_chunks,
                          uint32_t n_segments, uint32_t n_slots, uint32_t most,
                          struct gh_memory *memory, gh_error *err)
{
    struct gh_bank *first;
    gh_status status;

    *banks = (struct gh_banks){ .n_segments = n_segments,
                                .n_slots = n_slots,
                                .n_chunks = n_chunks,
                                .most = most,
                                .memory = memory };
    banks->shelves = calloc(n_shelves(banks), sizeof(*banks->shelves));
    banks->blank = calloc((size_t)n_segments * GH_ROWS * n_slots,
                          sizeof(*banks->blank));
    if (banks->shelves == NULL || banks->blank == NULL) {
        gh_banks_free(banks);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for banks");
    }
    status = add(banks, &first, err);
    if (status != GH_OK) {
        gh_banks_free(banks);
    }
    return status;
}

static void give_packed_back(struct gh_bank *bank, bool keep)
{
    struct gh_banks *banks = bank->banks;

    for (size_t i = 0; bank->packed != NULL && i < n_shelves(banks); i++) {
        if (bank->packed[i] != NULL) {
            bank->bytes -= bank->packed[i]->bytes;
        }
        gh_shelf_give_back(&banks->shelves[i], banks->memory, bank->number,
                           bank->packed[i], keep);
    }
    free(bank->packed);
    bank->packed = NULL;
}

void gh_banks_clear(struct gh_banks *banks)
{
    gh_retired_free_all(&banks->retired, banks->memory);
    for (uint32_t i = 0; i < banks->n; i++) {
        gh_bank_clear_all(banks->all[i]);
        give_packed_back(banks->all[i], true);
    }
    for (size_t i = 0; i < n_shelves(banks); i++) {
        gh_shelf_free(&banks->shelves[i], banks->memory);
    }
}

void gh_banks_free(struct gh_banks *banks)
{
    for (uint32_t i = 0; i < banks->n; i++) {
        gh_bank_free(banks->all[i]);
        free(banks->all[i]);
    }
    free(banks->all);
    free(banks->blank);
    free(banks->shelves);
    *banks = (struct gh_banks){ 0 };
}

gh_status gh_banks_add(struct gh_banks *banks, const gh_bank_desc *desc,
                       uint32_t *number_p, gh_error *err)
{
    struct gh_bank *bank;
    gh_status status = add(banks, &bank, err);

    if (status != GH_OK) {
        return status;
    }
    bank->cp_size = desc->cp_size;
    bank->group = desc->group;
    bank->tokens = desc->tokens;
    bank->sequences = desc->sequences;
    bank->unpacked = desc->sequences != 0 ? GH_REASON_PACKED : GH_REASON_NONE;
    snprintf(bank->name, sizeof(bank->name), "%s",
             desc->name == NULL ? "" : desc->name);
    if (bank->tokens > banks->most_tokens) {
        banks->most_tokens = bank->tokens;
    }
    *number_p = bank->number;
    return GH_OK;
}

gh_status gh_banks_admit(struct gh_banks *banks, struct gh_bank *bank,
                         gh_error *err)
{
    gh_status status = gh_bank_make(bank, err);

    if (status == GH_OK && !bank->admitted) {
        bank->admitted = true;
        banks->n_admitted++;
    }
    return status;
}

/* What has failed in the bank would fail again. */
static bool is_sticky(const struct gh_entry *entry)
{
    return entry->state == GH_ENTRY_EAGER || entry->unchained;
}

/* Moves the graphs out of the table; true when nothing is left in it. */
static bool move_graphs(struct gh_bank *bank, struct gh_retired *retired)
{
    const size_t n = gh_bank_rows(bank) * bank->n_slots;
    bool empty = true;

    for (size_t i = 0; i < n; i++) {
        struct gh_entry *entry = &bank->entries[i];

        if (entry->state == GH_ENTRY_READY) {
            bank->banks->n_nodes -= entry->n_nodes;
            bank->n_graphs--;
            if (entry->block != NULL) {
                bank->bytes -= entry->block->bytes;
                gh_shelf_give_back(entry->shelf, bank->banks->memory,
                                   bank->number, entry->block, true);
            }
            retired->entries[retired->n_entries++] = *entry;
            *entry = (struct gh_entry){ .unchained = entry->unchained };
        }
        empty = empty && !is_sticky(entry);
    }
    return empty;
}

void gh_banks_evict(struct gh_banks *banks, struct gh_bank *bank,
                    void **objects, uint32_t n)
{
    struct gh_retired *retired =
        gh_retired_create(bank->n_graphs, objects, n, banks->memory->streams);

    bank->admitted = false;
    banks->n_admitted--;
    bank->evictions++;
    if (retired == NULL) {
        /* No memory to remember them by: wait, and destroy them now. */
        gh_streams_quiesce(banks->memory->streams);
        gh_bank_clear_all(bank);
        gh_retired_release(objects, n, banks->memory);
    } else {
        if (move_graphs(bank, retired)) {
            gh_bank_free(bank);
        }
        retired->next = banks->retired;
        banks->retired = retired;
    }
    give_packed_back(bank, true);
}

static void stop_entries(const struct gh_memory *memory,
                         struct gh_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        gh_entry_free_graph(&entries[i], memory);
    }
}

void gh_banks_stop(struct gh_banks *banks)
{
    const struct gh_memory *memory = banks->memory;

    for (uint32_t i = 0; i < banks->n; i++) {
        const struct gh_bank *bank = banks->all[i];

        if (bank->entries != banks->blank) {
            stop_entries(memory, bank->entries,
                         gh_bank_rows(bank) * bank->n_slots);
        }
    }
    for (struct gh_retired *r = banks->retired; r != NULL; r = r->next) {
        stop_entries(memory, r->entries, r->n_entries);
    }
}

void gh_banks_forget_writers(struct gh_banks *banks)
{
    for (size_t i = 0; i < n_shelves(banks); i++) {
        for (uint32_t b = 0; b < banks->shelves[i].n; b++) {
            banks->shelves[i].blocks[b]->writer = NULL;
        }
    }
}

const struct gh_bank *gh_banks_whose(const struct gh_banks *banks,
                                     const struct gh_entry *entry)
{
    for (uint32_t i = 1; i < banks->n; i++) {
        const struct gh_bank *bank = banks->all[i];

        if (bank->entries != banks->blank && entry >= bank->entries &&
            entry < bank->entries + gh_bank_rows(bank) * bank->n_slots) {
            return bank;
        }
    }
    return banks->all[0];
}

uint64_t gh_banks_scale(const struct gh_banks *banks,
                        const struct gh_bank *bank, uint64_t bytes)
{
    const uint64_t most = banks->most_tokens;

    if (bank->tokens == 0 || bank->tokens >= most ||
        bytes > (UINT64_MAX - bank->tokens) / most) {
        return bytes;
    }
    return (bytes * most + bank->tokens - 1) / bank->tokens;
}
