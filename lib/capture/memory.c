/*
 * memory.c - whose the memory of a session is.
 *
 * Each byte that the session has allocated on the device counts once.  A block
 * of a shelf is that of the first bank, unless only others hold it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/capture.h"

#include "capture/packed.h"
#include "offload/offload.h"
#include "pass/pass.h"

/* Whether a bank has its sequences in the block. */
static bool has_offsets(const struct gh_banks *banks, size_t shelf,
                        const struct gh_block *block)
{
    for (uint32_t i = 0; i < banks->n; i++) {
        const struct gh_bank *bank = banks->all[i];

        if (bank->packed != NULL && bank->packed[shelf] == block) {
            return true;
        }
    }
    return false;
}

/* Whether banks hold the block, and bank 0 does not. */
static bool is_of_others(const struct gh_block *block)
{
    for (uint32_t i = 0; i < block->n_holders; i++) {
        if (block->holders[i] == 0) {
            return false;
        }
    }
    return block->n_holders != 0;
}

static void count_shelves(const struct gh_banks *banks, gh_memory_stats *stats)
{
    const size_t n = (size_t)banks->n_chunks * banks->n_slots;

    for (size_t s = 0; s < n && banks->shelves != NULL; s++) {
        const struct gh_shelf *shelf = &banks->shelves[s];

        for (uint32_t i = 0; i < shelf->n; i++) {
            const struct gh_block *block = shelf->blocks[i];
            uint64_t *whose = &stats->slot_bytes;

            if (has_offsets(banks, s, block)) {
                whose = &stats->offset_bytes;
            } else if (is_of_others(block)) {
                whose = &stats->bank_bytes;
            }
            *whose += block->bytes;
        }
    }
}

static void count_parts(const struct gh_capture *c, gh_memory_stats *stats)
{
    gh_offload_stats offload = { 0 };

    count_shelves(&c->banks, stats);
    stats->offset_bytes += gh_packed_bytes(c);
    if (gh_capture_count_offload(c, &offload)) {
        stats->ring_bytes = offload.ring_bytes;
        stats->kept_bytes = offload.kept_bytes;
    }
}

void gh_capture_count_memory(const struct gh_capture *c, gh_memory_stats *stats)
{
    const struct gh_arena *arena = &c->memory.arena;
    const uint64_t held = gh_memory_held(&c->memory);
    const uint64_t bytes = c->memory.bytes - held;

    stats->suspended = c->suspend.now;
    stats->check_bytes = c->check.scratch.bytes;
    stats->held_bytes = held;
    /* Neither is of the host's memory, or of the arena. */
    stats->device_bytes = stats->check_bytes + held;
    if (c->options.host.device_alloc != NULL) {
        stats->lent_bytes = bytes;
    } else if (gh_arena_is_open(arena)) {
        stats->device_bytes += arena->mapped;
        stats->spare_bytes = arena->reserved - bytes;
    } else {
        stats->device_bytes += bytes;
    }
    stats->pinned_bytes =
        c->offload != NULL && !c->suspend.now ? c->offload->pinned.bytes : 0;
    stats->device_given = c->suspend.device_given;
    stats->pinned_given = c->suspend.pinned_given;
    stats->suspends = c->suspend.times;
    stats->suspend_ns = c->suspend.suspend_ns;
    stats->resume_ns = c->suspend.resume_ns;
    count_parts(c, stats);
    stats->forecast_bytes = c->forecast.bytes;
}
