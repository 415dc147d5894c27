/*
 * memory.h - device memory for the library's own buffers, from the host or
 * from the driver.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_MEMORY_H
#define GH_MEMORY_MEMORY_H

#include <graphhooks/host.h>

#include "order/streams.h"

struct gh_memory {
    const struct gh_streams *streams; /* streams that may use it, and the
                                         device */
    const gh_host_services *host;     /* a missing service is NULL */
    uint64_t bytes;                   /* bytes allocated now */
};

/* Rounds up as cuMemAlloc aligns, so that several buffers can share one
 * piece. */
static inline uint64_t gh_memory_align(uint64_t bytes)
{
    return (bytes + 255) & ~UINT64_C(255);
}

gh_status gh_memory_alloc(struct gh_memory *memory, uint64_t bytes,
                          void **address_p, gh_error *err);
/* Work that uses the memory may still be running.  NULL is allowed. */
void gh_memory_free(struct gh_memory *memory, void *address, uint64_t bytes);

#endif
