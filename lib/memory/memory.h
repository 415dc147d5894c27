/*
 * memory.h - device memory for the library's own buffers, from the host or
 * from the driver.
 *
 * cuMemFree waits for the kernels of every device that reaches this one.  If
 * ranks are threads of one process, such a kernel may be waiting for this very
 * rank, and then the process hangs.  So what would be freed within a step is
 * held until the session closes, and given out again to who wants as much, if
 *
 *     - `holds` is set: other ranks are known to be threads of this process;
 *     - or the process has a session on another device, which may be a rank.
 *
 * What the host lends goes back to the host at once.
 *
 * If `arena` is open, memory comes from there instead of cuMemAlloc, so that it
 * can be given back and taken again at the same addresses.  What is freed goes
 * back to the arena.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_MEMORY_H
#define GH_MEMORY_MEMORY_H

#include <graphhooks/host.h>

#include "memory/arena.h"
#include "order/streams.h"

#include <stdbool.h>

struct gh_memory {
    const struct gh_streams *streams; /* streams that may use it, and the
                                         device */
    const gh_host_services *host;     /* a missing service is NULL */
    uint64_t bytes;                   /* bytes allocated now */
    uint64_t limit;                   /* of `bytes`, for inputs of graphs, which
                                         can go without; 0: none */
    uint64_t set_aside;               /* of the limit, for what cannot go
                                         without and may come later */
    bool holds;
    struct gh_held *held;
    struct gh_arena arena;
    struct gh_memory *next_open; /* of the process */
};

/* Rounds up as cuMemAlloc aligns, so that several buffers can share one
 * piece. */
static inline uint64_t gh_memory_align(uint64_t bytes)
{
    return (bytes + 255) & ~UINT64_C(255);
}

gh_status gh_memory_alloc(struct gh_memory *memory, uint64_t bytes,
                          void **address_p, gh_error *err);
/* Work that uses the memory may still be running: it is waited for, on every
 * stream that is known and not captured.  NULL is allowed. */
void gh_memory_free(struct gh_memory *memory, void *address, uint64_t bytes);
/* Whether nothing may be freed within a step, be it the device's memory or the
 * host's: cuMemFreeHost waits as cuMemFree does. */
bool gh_memory_holds(const struct gh_memory *memory);
/* Tells the process of a session that has a device. */
void gh_memory_open(struct gh_memory *memory);
/* Holds memory of gh_device_alloc() in any case. */
void gh_memory_keep(struct gh_memory *memory, void *address, uint64_t bytes);
/* The bytes that are held. */
uint64_t gh_memory_held(const struct gh_memory *memory);
/* Frees what is held, if that may be freed now. */
void gh_memory_trim(struct gh_memory *memory);
/* Frees what is held and the arena, and ends gh_memory_open(). */
void gh_memory_close(struct gh_memory *memory);

#endif
