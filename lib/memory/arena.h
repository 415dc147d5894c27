/*
 * arena.h - device memory that can be given back and taken again at the same
 * addresses.
 *
 * The arena reserves regions of addresses, maps memory to each, and cuts them
 * into pieces.  A region has whole granules of the driver, which are of 2 MiB,
 * so small pieces share one.  Without memory, all addresses stay as they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_ARENA_H
#define GH_MEMORY_ARENA_H

#include "device/device.h"

struct gh_region;

struct gh_arena {
    struct gh_device *dev;
    uint64_t granule; /* 0: the arena is not open */
    struct gh_region *regions;
    uint64_t reserved, mapped; /* bytes of all regions, and of those that have
                                  memory now */
    bool exact;      /* a piece has bytes, and is a region of whole granules */
};

/* GH_ERR_UNSUPPORTED: the device cannot, and the arena stays closed. */
gh_status gh_arena_open(struct gh_arena *arena, struct gh_device *dev,
                        gh_error *err);
/* All pieces were freed, or nobody needs them.  A closed arena is allowed. */
void gh_arena_close(struct gh_arena *arena);

static inline bool gh_arena_is_open(const struct gh_arena *arena)
{
    return arena->granule != 0;
}

/* The arena has its memory.  A piece is aligned to 512 bytes. */
gh_status gh_arena_alloc(struct gh_arena *arena, uint64_t bytes,
                         void **address_p, gh_error *err);
/* No work uses the piece any more.  A region of which nothing is used goes back
 * to the driver, unless `keep` is set. */
void gh_arena_free(struct gh_arena *arena, void *address, uint64_t bytes,
                   bool keep);
/* Gives the regions back of which nothing is used: those that were kept. */
void gh_arena_trim(struct gh_arena *arena);

/* Of an exact arena: whether a piece of so many bytes begins at the address.
 * *there_p and *bytes_p are the piece that has the address; NULL and 0: none
 * has. */
bool gh_arena_has(const struct gh_arena *arena, const void *address,
                  uint64_t bytes, const void **there_p, uint64_t *bytes_p);

/* Gives back all memory.  No work uses any.  If it fails, the rest is there
 * still. */
gh_status gh_arena_unmap(struct gh_arena *arena, gh_error *err);
/* Takes memory for all regions that have none; if it fails, for none of
 * them.  It holds anything. */
gh_status gh_arena_map(struct gh_arena *arena, gh_error *err);

#endif
