/*
 * stats.c - what a session has counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/capture.h"

#include "pass/pass.h"

static uint32_t slots_used(const struct gh_capture *c)
{
    uint32_t n = 0;

    for (uint32_t chunk = 0; chunk < c->plan->n_chunks; chunk++) {
        for (uint32_t i = n; i < c->options.max_slots; i++) {
            if (gh_slots_at(c->slots, chunk, i)->taken != 0) {
                n = i + 1;
            }
        }
    }
    return n;
}

void gh_capture_stats(const struct gh_capture *c, gh_stats *stats)
{
    *stats = c->counts.stats;
    stats->slots = slots_used(c);
    for (uint32_t i = 0; i < c->banks.n; i++) {
        stats->recordings += c->banks.all[i]->recordings;
        stats->replays += c->banks.all[i]->replays;
    }
    stats->static_bytes = c->memory.bytes;
    stats->nodes = c->banks.n_nodes;
    stats->hook_calls = c->counts.enters - 1 + c->counts.exits;
}

uint64_t gh_capture_eager(const struct gh_capture *c, gh_reason reason)
{
    return c->counts.eager[reason];
}

uint64_t gh_capture_iterations(const struct gh_capture *c)
{
    return c->counts.stats.iterations;
}
