/*
 * pinned_pattern.c - what new pinned memory holds, and where it still holds it.
 *
 * The CPU writes pinned memory without a call.  So each word of 8 bytes begins
 * as a number of its own, which depends on the allocation and on the place in
 * it.  A word that still holds its number was not written, except by a chance
 * of one in 2^64.  A word that was copied from elsewhere holds another number.
 * A word that was written in part no longer holds its number, so it counts as
 * written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/pinned_pattern.h"

#include <string.h>

enum {
    WORD = 8
};

/* A different number without a pattern for every `at`. */
static uint64_t number(uint64_t key, uint64_t at)
{
    uint64_t x = key + (at + 1) * 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void pinned_pattern_fill(struct alloc *alloc, uint64_t seed)
{
    char *to = (char *)alloc->base;

    alloc->pattern = number(number(0, seed), alloc->number);
    for (size_t at = 0; at < alloc->bytes; at += WORD) {
        const uint64_t word = number(alloc->pattern, at);
        const size_t left = alloc->bytes - at;

        memcpy(to + at, &word, left < WORD ? left : WORD);
    }
}

static bool is_fresh(const struct alloc *alloc, size_t at)
{
    uint64_t word;

    memcpy(&word, (const char *)alloc->base + at, WORD);
    return word == number(alloc->pattern, at);
}

bool pinned_pattern_find(const struct alloc *alloc, struct hole *range,
                         size_t least)
{
    size_t first = (range->first + WORD - 1) / WORD * WORD, at;

    for (at = first; at + WORD <= range->end; at += WORD) {
        if (is_fresh(alloc, at)) {
            continue;
        }
        if (at - first >= least) {
            break;
        }
        first = at + WORD;
    }
    if (at < first + least) {
        return false;
    }
    *range = (struct hole){ first, at };
    return true;
}
