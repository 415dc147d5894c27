/*
 * ring.c - see ring.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/ring.h"

#include "base/error.h"

#include <stdlib.h>

static void free_buffer(struct gh_ring *ring, struct gh_ring_buffer *buffer,
                        struct gh_memory *memory)
{
    struct gh_device *dev = memory->streams->dev;

    gh_device_event_destroy(dev, buffer->filled);
    gh_device_event_destroy(dev, buffer->read);
    gh_memory_free(memory, buffer->address, ring->bytes);
    free(buffer);
}

static gh_status make_buffer(struct gh_ring *ring, struct gh_memory *memory,
                             struct gh_ring_buffer **buffer_p, gh_error *err)
{
    struct gh_device *dev = memory->streams->dev;
    struct gh_ring_buffer *buffer = calloc(1, sizeof(*buffer));
    gh_status status;

    if (buffer == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a ring");
    }
    status = gh_device_event_create(dev, &buffer->filled, err);
    if (status == GH_OK) {
        status = gh_device_event_create(dev, &buffer->read, err);
    }
    if (status == GH_OK) {
        status = gh_memory_alloc(memory, ring->bytes, &buffer->address, err);
    }
    if (status != GH_OK) {
        free_buffer(ring, buffer, memory);
        return status;
    }
    *buffer_p = buffer;
    return GH_OK;
}

gh_status gh_ring_grow(struct gh_ring *ring, uint32_t n,
                       struct gh_memory *memory, gh_error *err)
{
    struct gh_ring_buffer **buffers;
    gh_status status = GH_OK;

    if (n <= ring->n) {
        return GH_OK;
    }
    buffers = realloc(ring->buffers, n * sizeof(struct gh_ring_buffer *));
    if (buffers == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a ring");
    }
    ring->buffers = buffers;
    while (ring->n < n && status == GH_OK) {
        status = make_buffer(ring, memory, &buffers[ring->n], err);
        ring->n += status == GH_OK;
    }
    return status;
}

void gh_ring_shrink(struct gh_ring *ring, uint32_t n, struct gh_memory *memory)
{
    while (ring->n > n) {
        free_buffer(ring, ring->buffers[--ring->n], memory);
    }
}

void gh_ring_free(struct gh_ring *ring, struct gh_memory *memory)
{
    gh_ring_shrink(ring, 0, memory);
    free(ring->buffers);
}

struct gh_ring_buffer *gh_ring_oldest(const struct gh_ring *ring)
{
    struct gh_ring_buffer *oldest = NULL;

    for (uint32_t i = 0; i < ring->n; i++) {
        struct gh_ring_buffer *buffer = ring->buffers[i];

        if (buffer->holder == NULL &&
            (oldest == NULL || buffer->turn < oldest->turn)) {
            oldest = buffer;
        }
    }
    return oldest;
}

struct gh_ring_buffer *gh_ring_before(const struct gh_ring *ring,
                                      const struct gh_ring_buffer *buffer,
                                      uint32_t n)
{
    if (n == 0 || n >= ring->n_indexed) {
        return NULL;
    }
    for (uint32_t i = 0; i < ring->n_indexed; i++) {
        if (ring->buffers[i] == buffer) {
            return ring->buffers[(i + ring->n_indexed - n) % ring->n_indexed];
        }
    }
    return NULL;
}
