/*
 * buffers.c - see buffers.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/buffers.h"

#include "base/error.h"
#include "capture/agree.h"
#include "capture/replay.h"
#include "pass/capacity.h"

#include <stdlib.h>
#include <string.h>

/* Whether another entry of the same slot and bank writes exactly this
 * range. */
static bool is_output(const struct gh_capture *c, uint32_t slot,
                      const gh_buffer *input)
{
    const struct gh_bank *bank = c->open.bank;

    for (size_t row = 0; row < gh_bank_rows(bank); row++) {
        const struct gh_entry *entry = gh_bank_in_row(bank, row, slot);

        for (uint32_t i = 0; i < entry->n_outputs; i++) {
            if (entry->outputs[i].address == input->address &&
                entry->outputs[i].bytes == input->bytes) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the pass gives less than the capacity of the input.  Such an input is
 * copied, as nothing can be zeroed behind what is read in place. */
static bool is_short(const struct gh_entry *entry, uint32_t i)
{
    const uint64_t *filled = entry->filled;

    return filled != NULL && filled[i] != GH_ALL_FILLED &&
           filled[entry->n_inputs + i] < filled[i];
}

/* With other ranks no input is chained: if one moved on this rank only, this
 * rank would record while the others replay. */
static enum gh_input_kind kind_of(const struct gh_capture *c,
                                  const struct gh_entry *entry, uint32_t i)
{
    const gh_buffer *input = &entry->inputs[i];

    if ((input->flags & GH_BUFFER_STATIC) != 0 || input->bytes == 0) {
        return GH_INPUT_STATIC;
    }
    if (!entry->unchained && !is_short(entry, i) && !gh_ask_is_due(c) &&
        is_output(c, c->open.slot, input)) {
        return GH_INPUT_CHAINED;
    }
    return GH_INPUT_COPIED;
}

/* Gives each input that has a capacity the size of its capacity. */
static void widen_inputs(struct gh_entry *entry, const gh_pass *pass)
{
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        entry->filled[i] = GH_ALL_FILLED;
        entry->filled[entry->n_inputs + i] = pass->inputs[i].bytes;
        if (pass->capacities[i] != 0) {
            entry->inputs[i].bytes = pass->capacities[i];
            entry->filled[i] = pass->capacities[i];
        }
    }
}

/* Sums of aligned sizes, and ends of buffers, do not overflow. */
static gh_status check_sizes(const gh_buffer *buffers, uint32_t n,
                             const char *name, gh_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (buffers[i].bytes > GH_MOST_CAPACITY) {
            return gh_fail(err, GH_ERR_INVALID,
                           "gh_pass.%s[%u] has %llu bytes, which no device has",
                           name, i, (unsigned long long)buffers[i].bytes);
        }
    }
    return GH_OK;
}

/* Allocates the inputs, how far each is filled and the kind of each in one
 * block. */
static gh_status keep_inputs(struct gh_entry *entry, const gh_pass *pass,
                             gh_error *err)
{
    const size_t n = pass->n_inputs;

    entry->inputs =
        malloc(n * (sizeof(gh_buffer) + 2 * sizeof(uint64_t) + 1) + 1);
    if (entry->inputs == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a recording");
    }
    entry->filled = (uint64_t *)(entry->inputs + n);
    entry->kinds = (uint8_t *)(entry->filled + 2 * n);
    entry->n_inputs = (uint32_t)n;
    if (n > 0) {
        memcpy(entry->inputs, pass->inputs, n * sizeof(gh_buffer));
    }
    if (pass->capacities != NULL) {
        widen_inputs(entry, pass);
    } else {
        entry->filled = NULL;
    }
    return GH_OK;
}

/* Gives every input that may move a buffer of the entry's own. */
static gh_status alloc_buffers(struct gh_capture *c, struct gh_entry *entry,
                               gh_error *err)
{
    uint64_t bytes = 0, wish = 0, offset = 0;
    gh_status status;

    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        entry->kinds[i] = (uint8_t)kind_of(c, entry, i);
        if (entry->kinds[i] == GH_INPUT_COPIED) {
            bytes += gh_memory_align(entry->inputs[i].bytes);
            wish += gh_memory_align(gh_banks_scale(&c->banks, c->open.bank,
                                                   entry->inputs[i].bytes));
            entry->n_copies++;
        }
    }
    if (entry->n_copies == 0) {
        return GH_OK;
    }

    status = gh_device_copy_create(c->dev, entry->n_copies, &entry->copy, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_bank_take(
        c->open.bank, entry,
        gh_banks_shelf(&c->banks, c->open.chunk, c->open.slot), bytes, wish,
        err);
    if (status != GH_OK) {
        return status;
    }

    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        if (entry->kinds[i] == GH_INPUT_COPIED) {
            entry->inputs[i].address = (char *)entry->block->address + offset;
            offset += gh_memory_align(entry->inputs[i].bytes);
        }
    }
    return GH_OK;
}

gh_status gh_buffers_keep_inputs(struct gh_capture *c, struct gh_entry *entry,
                                 const gh_pass *pass, gh_error *err)
{
    gh_status status = check_sizes(pass->inputs, pass->n_inputs, "inputs", err);

    if (status == GH_OK) {
        status = keep_inputs(entry, pass, err);
    }
    return status == GH_OK ? alloc_buffers(c, entry, err) : status;
}

gh_status gh_buffers_keep_outputs(struct gh_entry *entry, const gh_pass *pass,
                                  gh_error *err)
{
    const size_t n = pass->n_outputs;
    gh_status status =
        check_sizes(pass->outputs, pass->n_outputs, "outputs", err);

    if (status != GH_OK || n == 0) {
        return status;
    }
    entry->outputs = malloc(n * sizeof(gh_buffer));
    if (entry->outputs == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a recording");
    }
    entry->n_outputs = (uint32_t)n;
    memcpy(entry->outputs, pass->outputs, n * sizeof(gh_buffer));
    return GH_OK;
}
