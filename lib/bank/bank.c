/*
 * bank.c - see bank.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/bank.h"

#include "bank/banks.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static size_t count(const struct gh_bank *bank)
{
    return gh_bank_rows(bank) * bank->n_slots;
}

static bool is_blank(const struct gh_bank *bank)
{
    return bank->entries == bank->banks->blank;
}

gh_status gh_bank_make(struct gh_bank *bank, gh_error *err)
{
    struct gh_entry *entries;

    if (!is_blank(bank)) {
        return GH_OK;
    }
    entries = calloc(count(bank), sizeof(*entries));
    if (entries == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %zu passes",
                       count(bank));
    }
    bank->entries = entries;
    return GH_OK;
}

void gh_bank_free(struct gh_bank *bank)
{
    if (!is_blank(bank)) {
        free(bank->entries);
    }
    bank->entries = bank->banks->blank;
}

/* cuGraphExecDestroy is safe while the graph runs; a host's destroy may give
 * away at once what its graph has in use. */
static void wait_for_host(const struct gh_bank *bank,
                          const struct gh_entry *entry)
{
    if (entry->object != NULL && entry->state == GH_ENTRY_READY) {
        gh_streams_quiesce(bank->banks->memory->streams);
    }
}

void gh_entry_free_graph(struct gh_entry *entry, const struct gh_memory *memory)
{
    if (entry->object == NULL) {
        gh_device_exec_destroy(memory->streams->dev, entry->exec);
    } else {
        memory->host->destroy(memory->host->user, entry->object);
    }
    entry->object = entry->exec = NULL;
}

void gh_entry_free(struct gh_entry *entry, const struct gh_memory *memory)
{
    gh_entry_free_graph(entry, memory);
    gh_device_copy_destroy(entry->copy);
    free(entry->inputs);
    free(entry->outputs);
    gh_offload_script_free(&entry->script);
}

void gh_bank_clear(struct gh_bank *bank, struct gh_entry *entry)
{
    struct gh_memory *memory = bank->banks->memory;
    struct gh_device *dev = memory->streams->dev;
    struct gh_device_before before = gh_device_enter(dev);
    const struct gh_entry kept = { .unchained = entry->unchained,
                                   .spoilt = entry->spoilt,
                                   .dropped = entry->dropped,
                                   .drops = entry->drops };

    if (entry->state == GH_ENTRY_READY) {
        bank->banks->n_nodes -= entry->n_nodes;
        bank->n_graphs--;
    }
    wait_for_host(bank, entry);
    gh_entry_free(entry, memory);
    if (entry->block != NULL) {
        bank->bytes -= entry->block->bytes;
        gh_shelf_give_back(entry->shelf, memory, bank->number, entry->block,
                           false);
    }
    gh_device_leave(dev, before);
    *entry = kept;
}

void gh_bank_clear_all(struct gh_bank *bank)
{
    for (size_t i = 0; i < count(bank) && !is_blank(bank); i++) {
        gh_bank_clear(bank, &bank->entries[i]);
    }
}

/* What counts against the limit: all that there is, or the blocks of all
 * shelves and what is set aside. */
static uint64_t count_used(const struct gh_banks *banks)
{
    const size_t n = (size_t)banks->n_chunks * banks->n_slots;
    uint64_t bytes = banks->memory->set_aside;

    for (size_t s = 0; s < n; s++) {
        for (uint32_t i = 0; i < banks->shelves[s].n; i++) {
            bytes += banks->shelves[s].blocks[i]->bytes;
        }
    }
    return bytes > banks->memory->bytes ? bytes : banks->memory->bytes;
}

/* Blocks of the shelf fit in any case.  The text has no number of this entry's,
 * so that entries share one line. */
static gh_status fit(const struct gh_bank *bank, const struct gh_shelf *shelf,
                     uint64_t bytes, uint64_t *wish_p, gh_error *err)
{
    const struct gh_memory *memory = bank->banks->memory;
    uint64_t used, room;

    if (memory->limit == 0 || gh_shelf_has(shelf, bank->number, bytes)) {
        return GH_OK;
    }
    used = count_used(bank->banks);
    room = memory->limit > used ? memory->limit - used : 0;
    if (bytes > room) {
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "its inputs do not fit in GRAPHHOOKS_MEMORY_LIMIT=%llu",
                       (unsigned long long)memory->limit);
    }
    if (*wish_p > room) {
        *wish_p = bytes;
    }
    return GH_OK;
}

gh_status gh_bank_take(struct gh_bank *bank, struct gh_entry *entry,
                       struct gh_shelf *shelf, uint64_t bytes, uint64_t wish,
                       gh_error *err)
{
    gh_status status = fit(bank, shelf, bytes, &wish, err);

    if (status == GH_OK) {
        status = gh_shelf_take(shelf, bank->banks->memory, bank->number, bytes,
                               wish, &entry->block, err);
    }
    if (status == GH_OK) {
        entry->shelf = shelf;
        bank->bytes += entry->block->bytes;
    }
    return status;
}

struct gh_bank_label gh_bank_describe(const struct gh_bank *bank)
{
    const char *name = bank->number == 0 ? "declared by nobody" : bank->name;
    struct gh_bank_label label;

    if (name[0] == '\0') {
        snprintf(label.text, sizeof(label.text), "bank %u", bank->number);
    } else {
        snprintf(label.text, sizeof(label.text), "bank %u (%s)", bank->number,
                 name);
    }
    return label;
}

struct gh_entry_position gh_bank_position_of(const struct gh_bank *bank,
                                             const struct gh_entry *entry)
{
    const size_t i = (size_t)(entry - bank->entries);
    const size_t row = i / bank->n_slots;

    return (struct gh_entry_position){
        .segment = (uint32_t)(row / GH_ROWS),
        .direction = (gh_direction)(row % GH_ROWS / GH_VARIANTS),
        .variant = (uint32_t)(row % GH_VARIANTS),
        .slot = (uint32_t)(i % bank->n_slots),
    };
}
