/*
 * blocks.h - device memory that the banks of a slot share.
 *
 * A flight is of one bank, so of the graphs of a slot only those of one bank
 * run at a time, and the banks lie in the same memory.  A shelf has the blocks
 * of one slot of one chunk.  A block is held by at most one recording of each
 * bank, and its address stays until nobody holds it.
 *
 * Order: what a bank writes into a block overwrites what another bank's last
 * flight has left there.  It does so in a later flight of the same slot, which
 * waits for the streams of the one before: lib/order keeps slots, and nothing
 * more is needed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_BLOCKS_H
#define GH_BANK_BLOCKS_H

#include "memory/memory.h"

#include <stdbool.h>

struct gh_block {
    void *address;
    uint64_t bytes;
    const void *writer; /* who has written all of it last; NULL: nobody */
    uint32_t *holders;  /* numbers of banks */
    uint32_t n_holders, room;
};

struct gh_shelf {
    struct gh_block **blocks;
    uint32_t n;
};

/* The smallest block of at least `bytes` that the bank does not hold yet; a
 * new one has `wish` bytes, or `bytes` where memory is short. */
gh_status gh_shelf_take(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, uint64_t bytes, uint64_t wish,
                        struct gh_block **block_p, gh_error *err);
/* The bank holds it no longer.  Unless it is to be kept for others, one that
 * nobody holds is freed.  NULL is allowed. */
void gh_shelf_give_back(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, struct gh_block *block, bool keep);
/* Nothing holds any block, and nothing uses them. */
void gh_shelf_free(struct gh_shelf *shelf, struct gh_memory *memory);

#endif
