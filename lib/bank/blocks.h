/*
 * blocks.h - device memory that the banks of a slot share.
 *
 * A microbatch in flight uses one bank, so only graphs of one bank run in a
 * slot at a time, and the banks can use the same memory.  A shelf holds the
 * blocks of one slot of one chunk.  A bank holds a block at
 * most once, and the block keeps its address as long as a bank holds it.
 *
 * Order: a bank overwrites what another bank has left in a block.  It does so
 * in a later microbatch of the same slot, which waits for the streams of the
 * one before (lib/order), so no further wait is needed.
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
    const void *writer; /* the entry that has last written the whole block;
                           NULL: none */
    uint32_t *holders;  /* numbers of the banks that hold it */
    uint32_t n_holders, room;
};

struct gh_shelf {
    struct gh_block **blocks;
    uint32_t n;
};

/* Takes the smallest block of at least `bytes` that the bank does not hold yet.
 * If there is none, makes one of `wish` bytes, or of `bytes` if there is no
 * memory for that. */
gh_status gh_shelf_take(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, uint64_t bytes, uint64_t wish,
                        struct gh_block **block_p, gh_error *err);
/* Whether that takes a block that is there. */
bool gh_shelf_has(const struct gh_shelf *shelf, uint32_t bank, uint64_t bytes);
/* Gives a block back.  It is freed if no other bank holds it and `keep` is
 * false.  NULL is allowed. */
void gh_shelf_give_back(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, struct gh_block *block, bool keep);
/* Frees all blocks.  No bank holds one, and no work uses one. */
void gh_shelf_free(struct gh_shelf *shelf, struct gh_memory *memory);

#endif
