/*
 * alloc.c - the table of allocations, by address.
 *
 * It tells a good address from a wild one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/alloc.h"

#include <stdlib.h>
#include <string.h>

static struct alloc **allocs; /* by address */
static size_t n_allocs, allocs_room;
static struct alloc *recent;
static uint64_t n_made;
static struct tally tallies[N_SIDES];

/* The index of the first allocation that starts above the address. */
static size_t above(uintptr_t address)
{
    size_t low = 0, high = n_allocs;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (allocs[middle]->base > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

struct alloc *alloc_find(const void *address, size_t bytes)
{
    uintptr_t a = (uintptr_t)address;

    if (recent == NULL || a < recent->base ||
        a - recent->base >= recent->bytes) {
        size_t i = above(a);

        if (i == 0 || a - allocs[i - 1]->base >= allocs[i - 1]->bytes) {
            return NULL;
        }
        recent = allocs[i - 1];
    }
    return bytes <= recent->bytes - (a - recent->base) ? recent : NULL;
}

struct tally alloc_tally(enum side side)
{
    return tallies[side];
}

struct alloc *alloc_nth(size_t i)
{
    return i < n_allocs ? allocs[i] : NULL;
}

struct alloc *alloc_add(void *base, size_t bytes, enum side side, CUcontext ctx)
{
    struct alloc *alloc = calloc(1, sizeof(*alloc));
    size_t at;

    if (alloc == NULL) {
        return NULL;
    }
    if (n_allocs == allocs_room) {
        size_t room = allocs_room ? allocs_room * 2 : 64;
        struct alloc **larger = realloc(allocs, room * sizeof(*larger));

        if (larger == NULL) {
            free(alloc);
            return NULL;
        }
        allocs = larger;
        allocs_room = room;
    }
    alloc->base = (uintptr_t)base;
    alloc->bytes = bytes;
    alloc->side = side;
    alloc->ctx = ctx;
    alloc->number = ++n_made;
    at = above(alloc->base);
    memmove(&allocs[at + 1], &allocs[at], (n_allocs - at) * sizeof(allocs[0]));
    allocs[at] = alloc;
    n_allocs++;
    tallies[side].n++;
    tallies[side].bytes += bytes;
    return alloc;
}

void alloc_remove(struct alloc *alloc)
{
    size_t at = above(alloc->base) - 1;

    memmove(&allocs[at], &allocs[at + 1],
            (n_allocs - at - 1) * sizeof(allocs[0]));
    n_allocs--;
    recent = NULL;
    tallies[alloc->side].n--;
    tallies[alloc->side].bytes -= alloc->bytes;
    free(alloc);
}
