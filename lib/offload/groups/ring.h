/*
 * ring.h - device buffers that the groups of one size class take in turn.
 *
 * A class has two rings.  In the one on the way out a forward writes, and the
 * copy to the host reads.  In the one on the way back the copy from the host
 * writes, and a backward reads.  They are apart, as a forward that is issued
 * early must not wait for a backward that is issued late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_RING_H
#define GH_OFFLOAD_RING_H

#include "memory/memory.h"

struct gh_instance;

struct gh_ring_buffer {
    void *address;
    void *filled; /* event: the group is in it, whoever wrote it */
    void *read;   /* event: it has been read, and may be written again */
    struct gh_instance *holder; /* whose group is in it; NULL: nobody's */
    uint64_t turn;              /* when it was taken last */
    uint32_t timed; /* of a step that is measured: the number of its last copy,
                       from 1; 0: none */
};

struct gh_ring {
    uint64_t bytes; /* of each buffer */
    uint32_t n;
    uint32_t n_indexed; /* the first of them, which groups have by
                        gh_ring_buffer_of(); the others are for passes that run
                        eagerly */
    struct gh_ring_buffer **buffers;
    uint64_t turns;
};

/* Makes buffers until there are `n`. */
gh_status gh_ring_grow(struct gh_ring *ring, uint32_t n,
                       struct gh_memory *memory, gh_error *err);
/* Frees buffers until there are `n`; nobody holds those. */
void gh_ring_shrink(struct gh_ring *ring, uint32_t n, struct gh_memory *memory);
/* Nothing uses them any more. */
void gh_ring_free(struct gh_ring *ring, struct gh_memory *memory);

/* The free buffer that was taken longest ago; NULL: none is free. */
struct gh_ring_buffer *gh_ring_oldest(const struct gh_ring *ring);

/* The buffer `n` before it, round the ring; NULL if n is 0, or not less than
 * the number of buffers. */
struct gh_ring_buffer *gh_ring_before(const struct gh_ring *ring,
                                      const struct gh_ring_buffer *buffer,
                                      uint32_t n);

static inline void gh_ring_hold(struct gh_ring *ring,
                                struct gh_ring_buffer *buffer,
                                struct gh_instance *holder)
{
    buffer->holder = holder;
    buffer->turn = ++ring->turns;
}

#endif
