/*
 * bank.c - see bank.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/bank.h"

#include "base/error.h"

#include <stdlib.h>

static size_t count(const struct gh_bank *bank)
{
    return gh_bank_rows(bank) * bank->n_slots;
}

gh_status gh_bank_create(struct gh_bank *bank, uint32_t n_segments,
                         uint32_t n_slots, struct gh_memory *memory,
                         gh_error *err)
{
    *bank = (struct gh_bank){ .n_segments = n_segments,
                              .n_slots = n_slots,
                              .memory = memory };
    bank->entries = calloc(count(bank), sizeof(*bank->entries));
    if (bank->entries == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %zu passes",
                       count(bank));
    }
    return GH_OK;
}

void gh_bank_free(struct gh_bank *bank)
{
    free(bank->entries);
    bank->entries = NULL;
}

/* cuGraphExecDestroy is safe while the graph runs; a host's destroy may give
 * away at once what its graph has in use. */
static void destroy_graph(const struct gh_bank *bank,
                          const struct gh_entry *entry)
{
    const struct gh_streams *streams = bank->memory->streams;
    const gh_host_services *host = bank->memory->host;

    if (entry->object == NULL) {
        gh_device_exec_destroy(streams->dev, entry->exec);
        return;
    }
    if (entry->state == GH_ENTRY_READY) {
        gh_streams_quiesce(streams);
    }
    host->destroy(host->user, entry->object);
}

void gh_bank_clear(struct gh_bank *bank, struct gh_entry *entry)
{
    struct gh_device *dev = bank->memory->streams->dev;
    struct gh_device_before before = gh_device_enter(dev);
    const bool unchained = entry->unchained;

    if (entry->state == GH_ENTRY_READY) {
        bank->n_nodes -= entry->n_nodes;
    }
    destroy_graph(bank, entry);
    gh_device_copy_destroy(entry->copy);
    gh_memory_free(bank->memory, entry->buffers, entry->buffer_bytes);
    free(entry->inputs);
    free(entry->outputs);
    gh_offload_script_free(&entry->script);
    gh_device_leave(dev, before);
    *entry = (struct gh_entry){ .unchained = unchained };
}

void gh_bank_clear_all(struct gh_bank *bank)
{
    for (size_t i = 0; i < count(bank); i++) {
        gh_bank_clear(bank, &bank->entries[i]);
    }
}

struct gh_place gh_bank_place_of(const struct gh_bank *bank,
                                 const struct gh_entry *entry)
{
    const size_t i = (size_t)(entry - bank->entries);
    const size_t row = i / bank->n_slots;

    return (struct gh_place){
        .segment = (uint32_t)(row / GH_ROWS),
        .direction = (gh_direction)(row % GH_ROWS / GH_VARIANTS),
        .variant = (uint32_t)(row % GH_VARIANTS),
        .slot = (uint32_t)(i % bank->n_slots),
    };
}
