/*
 * pinned.c - see pinned.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/pinned.h"

#include "base/error.h"

#include <stdlib.h>

void gh_pinned_init(struct gh_pinned *pinned, struct gh_device *dev,
                    uint64_t limit)
{
    *pinned = (struct gh_pinned){ .dev = dev, .limit = limit };
}

static void free_block(struct gh_pinned *pinned, struct gh_pinned_block *block)
{
    gh_device_event_destroy(pinned->dev, block->copied);
    gh_device_host_free(pinned->dev, block->address);
    free(block);
}

void gh_pinned_free(struct gh_pinned *pinned)
{
    struct gh_pinned_block *block = pinned->newest;

    while (block != NULL) {
        struct gh_pinned_block *older = block->older;

        free_block(pinned, block);
        block = older;
    }
    free(pinned->sizes);
    *pinned = (struct gh_pinned){ .dev = pinned->dev };
}

static struct gh_pinned_size *find_size(const struct gh_pinned *pinned,
                                        uint64_t bytes)
{
    for (uint32_t i = 0; i < pinned->n_sizes; i++) {
        if (pinned->sizes[i].bytes == bytes) {
            return &pinned->sizes[i];
        }
    }
    return NULL;
}

static gh_status add_size(struct gh_pinned *pinned, uint64_t bytes,
                          struct gh_pinned_size **size_p, gh_error *err)
{
    const size_t n = pinned->n_sizes + (size_t)1;
    struct gh_pinned_size *sizes =
        realloc(pinned->sizes, n * sizeof(*pinned->sizes));

    if (sizes == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a size of blocks");
    }
    pinned->sizes = sizes;
    *size_p = &sizes[pinned->n_sizes++];
    **size_p = (struct gh_pinned_size){ .bytes = bytes };
    return GH_OK;
}

static gh_status refuse(const struct gh_pinned *pinned, uint64_t bytes,
                        gh_error *err)
{
    return gh_fail(err, GH_ERR_NO_MEMORY,
                   "the pool of pinned memory has %llu bytes, and %llu more "
                   "would pass its limit of %llu: raise "
                   "GRAPHHOOKS_OFFLOAD_POOL_BYTES",
                   (unsigned long long)pinned->bytes,
                   (unsigned long long)bytes,
                   (unsigned long long)pinned->limit);
}

static gh_status make_block(struct gh_pinned *pinned, uint64_t bytes,
                            struct gh_pinned_block **block_p, gh_error *err)
{
    struct gh_pinned_block *block;
    gh_status status;

    if (pinned->limit != 0 && (bytes > pinned->limit ||
                               pinned->bytes > pinned->limit - bytes)) {
        return refuse(pinned, bytes, err);
    }
    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a block");
    }
    block->bytes = bytes;
    status = gh_device_event_create(pinned->dev, &block->copied, err);
    if (status == GH_OK) {
        status =
            gh_device_host_alloc(pinned->dev, bytes, &block->address, err);
    }
    if (status != GH_OK) {
        free_block(pinned, block);
        return status;
    }
    block->older = pinned->newest;
    pinned->newest = block;
    pinned->bytes += bytes;
    *block_p = block;
    return GH_OK;
}

gh_status gh_pinned_take(struct gh_pinned *pinned, uint64_t bytes,
                         struct gh_pinned_block **block_p, gh_error *err)
{
    struct gh_pinned_size *size = find_size(pinned, bytes);
    gh_status status = GH_OK;

    if (size == NULL) {
        status = add_size(pinned, bytes, &size, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (size->free == NULL) {
        return make_block(pinned, bytes, block_p, err);
    }
    *block_p = size->free;
    size->free = size->free->next;
    return GH_OK;
}

void gh_pinned_give_back(struct gh_pinned *pinned,
                         struct gh_pinned_block *block)
{
    struct gh_pinned_size *size = find_size(pinned, block->bytes);

    block->next = size->free;
    size->free = block;
}
