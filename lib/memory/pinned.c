/*
 * pinned.c - see pinned.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/pinned.h"

#include "base/error.h"
#include "memory/numa.h"

#include <errno.h>
#include <stdlib.h>

void gh_pinned_init(struct gh_pinned *pinned, struct gh_device *dev,
                    uint64_t limit)
{
    char bus_id[32];

    *pinned = (struct gh_pinned){ .dev = dev,
                                  .limit = limit,
                                  .least = UINT64_MAX,
                                  .node = GH_NUMA_UNKNOWN };
    if (gh_device_bus_id(dev, bus_id, sizeof(bus_id))) {
        pinned->node = gh_numa_node_of("/sys", bus_id);
    }
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
    while (pinned->sizes != NULL) {
        struct gh_pinned_size *next = pinned->sizes->next;

        free(pinned->sizes);
        pinned->sizes = next;
    }
    *pinned = (struct gh_pinned){ .dev = pinned->dev };
}

static struct gh_pinned_size *find_size(const struct gh_pinned *pinned,
                                        uint64_t bytes)
{
    struct gh_pinned_size *size = pinned->sizes;

    while (size != NULL && size->bytes != bytes) {
        size = size->next;
    }
    return size;
}

static gh_status add_size(struct gh_pinned *pinned, uint64_t bytes,
                          struct gh_pinned_size **size_p, gh_error *err)
{
    struct gh_pinned_size *size = malloc(sizeof(*size));

    if (size == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a size of blocks");
    }
    *size = (struct gh_pinned_size){ bytes, NULL, pinned->sizes };
    pinned->sizes = size;
    *size_p = size;
    return GH_OK;
}

uint64_t gh_pinned_room(const struct gh_pinned *pinned)
{
    const uint64_t limit = pinned->limit != 0 ? pinned->limit : UINT64_MAX;

    return pinned->least < limit ? pinned->least : limit;
}

static gh_status refuse(const struct gh_pinned *pinned, uint64_t bytes,
                        gh_error *err)
{
    if (pinned->limit == 0 || pinned->least < pinned->limit) {
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "the driver has refused more pinned memory than %llu "
                       "bytes: raise what the machine lets a process pin",
                       (unsigned long long)pinned->least);
    }
    return gh_fail(err, GH_ERR_NO_MEMORY,
                   "the pool of pinned memory has %llu bytes, and %llu more "
                   "would pass its limit of %llu: raise "
                   "GRAPHHOOKS_OFFLOAD_POOL_BYTES",
                   (unsigned long long)pinned->bytes,
                   (unsigned long long)bytes,
                   (unsigned long long)pinned->limit);
}

/* Allocates near the device if possible, and anywhere else if not. */
static gh_status alloc_near(struct gh_pinned *pinned, uint64_t bytes,
                            void **address_p, gh_error *err)
{
    struct gh_numa_before before = { .changed = false };
    gh_status status;

    if (pinned->node != GH_NUMA_UNKNOWN) {
        before = gh_numa_begin(pinned->node);
        pinned->refused = before.changed ? pinned->refused : errno;
    }
    status = gh_device_host_alloc(pinned->dev, bytes, address_p, err);
    gh_numa_end(&before);
    return status;
}

static void note_refusal(struct gh_pinned *pinned, gh_status status)
{
    if (status == GH_ERR_NO_MEMORY) {
        pinned->least =
            pinned->bytes < pinned->least ? pinned->bytes : pinned->least;
    }
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
        status = alloc_near(pinned, bytes, &block->address, err);
        note_refusal(pinned, status);
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
    struct gh_pinned_block *block = NULL;
    gh_status status = GH_OK;

    if (size == NULL) {
        status = add_size(pinned, bytes, &size, err);
    }
    if (status != GH_OK) {
        return status;
    }
    if (size->free == NULL) {
        status = make_block(pinned, bytes, &block, err);
        if (status != GH_OK) {
            return status;
        }
        block->size = size;
    } else {
        block = size->free;
        size->free = size->free->next;
    }
    pinned->in_use += bytes;
    if (pinned->in_use > pinned->peak) {
        pinned->peak = pinned->in_use;
    }
    *block_p = block;
    return GH_OK;
}

void gh_pinned_give_back(struct gh_pinned *pinned,
                         struct gh_pinned_block *block)
{
    pinned->in_use -= block->bytes;
    block->next = block->size->free;
    block->size->free = block;
}

gh_status gh_pinned_ask(const struct gh_pinned *pinned, uint64_t bytes,
                        uint32_t n, gh_error *err)
{
    const struct gh_pinned_size *size = find_size(pinned, bytes);
    const struct gh_pinned_block *block = size != NULL ? size->free : NULL;
    const uint64_t room = gh_pinned_room(pinned);

    for (; block != NULL && n != 0; block = block->next) {
        n--;
    }
    return n == 0 || (pinned->bytes <= room && bytes <= (room - pinned->bytes) / n)
               ? GH_OK
               : refuse(pinned, bytes, err);
}

/* Takes those blocks out of the list of all, and frees them. */
static void free_marked(struct gh_pinned *pinned)
{
    struct gh_pinned_block **at = &pinned->newest;

    while (*at != NULL) {
        struct gh_pinned_block *block = *at;

        if (block->size != NULL) {
            at = &block->older;
            continue;
        }
        *at = block->older;
        pinned->bytes -= block->bytes;
        free_block(pinned, block);
    }
}

void gh_pinned_trim(struct gh_pinned *pinned, uint64_t bytes, uint64_t keep)
{
    struct gh_pinned_size *size = find_size(pinned, bytes);
    uint64_t in_use = 0;

    if (size == NULL) {
        return;
    }
    for (const struct gh_pinned_block *b = pinned->newest; b != NULL;
         b = b->older) {
        in_use += b->size == size;
    }
    for (const struct gh_pinned_block *b = size->free; b != NULL; b = b->next) {
        in_use--;
    }
    keep = keep > in_use ? keep - in_use : 0;
    for (struct gh_pinned_block **at = &size->free; *at != NULL;) {
        if (keep != 0) {
            at = &(*at)->next;
            keep--;
        } else {
            (*at)->size = NULL; /* it is to go */
            *at = (*at)->next;
        }
    }
    free_marked(pinned);
}

uint64_t gh_pinned_suspend(struct gh_pinned *pinned)
{
    uint64_t bytes = 0;

    for (struct gh_pinned_block *b = pinned->newest; b != NULL; b = b->older) {
        if (b->address != NULL) {
            gh_device_host_free(pinned->dev, b->address);
            b->address = NULL;
            bytes += b->bytes;
        }
    }
    return bytes;
}

gh_status gh_pinned_resume(struct gh_pinned *pinned, gh_error *err)
{
    gh_status status = GH_OK;

    for (struct gh_pinned_block *b = pinned->newest;
         b != NULL && status == GH_OK; b = b->older) {
        if (b->address == NULL) {
            status = alloc_near(pinned, b->bytes, &b->address, err);
        }
    }
    return status;
}

gh_status gh_pinned_wait(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *err)
{
    gh_status status = GH_OK;

    if (block->unmarked != NULL) {
        status = gh_pinned_mark(pinned, block, block->unmarked, err);
    }
    if (status == GH_OK && block->used) {
        status = gh_device_event_wait(pinned->dev, stream, block->copied, err);
    }
    if (status == GH_OK) {
        block->unmarked = stream;
    }
    return status;
}

gh_status gh_pinned_mark(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *err)
{
    gh_status status =
        gh_device_event_record(pinned->dev, block->copied, stream, err);

    if (status == GH_OK) {
        block->used = true;
        block->unmarked = NULL;
    }
    return status;
}
