/*
 * blocks.c - see blocks.h.
 *
 * The smallest block that is large enough is taken, so that whatever fits at
 * all fits: a bank whose requests are each at most those of a larger one finds
 * a block for every one of them, in any order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/blocks.h"

#include "base/error.h"

#include <stdlib.h>

static bool is_held(const struct gh_block *block, uint32_t bank)
{
    for (uint32_t i = 0; i < block->n_holders; i++) {
        if (block->holders[i] == bank) {
            return true;
        }
    }
    return false;
}

static struct gh_block *find(const struct gh_shelf *shelf, uint32_t bank,
                             uint64_t bytes)
{
    struct gh_block *best = NULL;

    for (uint32_t i = 0; i < shelf->n; i++) {
        struct gh_block *block = shelf->blocks[i];

        if (block->bytes >= bytes && !is_held(block, bank) &&
            (best == NULL || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

static gh_status hold(struct gh_block *block, uint32_t bank, gh_error *err)
{
    if (block->n_holders == block->room) {
        const uint32_t room = block->room * 2 + 2;
        uint32_t *holders = realloc(block->holders, room * sizeof(*holders));

        if (holders == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a bank");
        }
        block->holders = holders;
        block->room = room;
    }
    block->holders[block->n_holders++] = bank;
    return GH_OK;
}

static gh_status alloc(struct gh_block *block, struct gh_memory *memory,
                       uint64_t bytes, uint64_t wish, gh_error *err)
{
    if (wish > bytes &&
        gh_memory_alloc(memory, wish, &block->address, NULL) == GH_OK) {
        block->bytes = wish;
        return GH_OK;
    }
    block->bytes = bytes;
    return gh_memory_alloc(memory, bytes, &block->address, err);
}

static gh_status add(struct gh_shelf *shelf, struct gh_memory *memory,
                     uint64_t bytes, uint64_t wish, struct gh_block **block_p,
                     gh_error *err)
{
    struct gh_block **blocks =
        realloc(shelf->blocks, (shelf->n + (size_t)1) * sizeof(*blocks));
    struct gh_block *block = calloc(1, sizeof(*block));
    gh_status status;

    if (blocks != NULL) {
        shelf->blocks = blocks;
    }
    if (blocks == NULL || block == NULL) {
        free(block);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a block");
    }
    status = alloc(block, memory, bytes, wish, err);
    if (status != GH_OK) {
        free(block);
        return status;
    }
    shelf->blocks[shelf->n++] = block;
    *block_p = block;
    return GH_OK;
}

static void drop(struct gh_shelf *shelf, struct gh_memory *memory,
                 struct gh_block *block)
{
    uint32_t i = 0;

    while (shelf->blocks[i] != block) {
        i++;
    }
    shelf->blocks[i] = shelf->blocks[--shelf->n];
    gh_memory_free(memory, block->address, block->bytes);
    free(block->holders);
    free(block);
}

bool gh_shelf_has(const struct gh_shelf *shelf, uint32_t bank, uint64_t bytes)
{
    return find(shelf, bank, bytes) != NULL;
}

gh_status gh_shelf_take(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, uint64_t bytes, uint64_t wish,
                        struct gh_block **block_p, gh_error *err)
{
    struct gh_block *block = find(shelf, bank, bytes);
    gh_status status = GH_OK;

    if (block == NULL) {
        status = add(shelf, memory, bytes, wish, &block, err);
    }
    if (status != GH_OK) {
        return status;
    }
    status = hold(block, bank, err);
    if (status != GH_OK) {
        if (block->n_holders == 0) {
            drop(shelf, memory, block);
        }
        return status;
    }
    *block_p = block;
    return GH_OK;
}

void gh_shelf_give_back(struct gh_shelf *shelf, struct gh_memory *memory,
                        uint32_t bank, struct gh_block *block, bool keep)
{
    uint32_t i = 0;

    if (block == NULL) {
        return;
    }
    while (block->holders[i] != bank) {
        i++;
    }
    block->holders[i] = block->holders[--block->n_holders];
    if (block->n_holders == 0 && !keep) {
        drop(shelf, memory, block);
    }
}

void gh_shelf_free(struct gh_shelf *shelf, struct gh_memory *memory)
{
    while (shelf->n > 0) {
        drop(shelf, memory, shelf->blocks[shelf->n - 1]);
    }
    free(shelf->blocks);
    *shelf = (struct gh_shelf){ 0 };
}
