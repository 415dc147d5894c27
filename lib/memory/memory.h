/*
 * memory.h - device memory for the library's own buffers, and who lends it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_MEMORY_H
#define GH_MEMORY_MEMORY_H

#include <graphhooks/host.h>

#include "order/streams.h"

struct gh_memory {
    const struct gh_streams *streams; /* that may use it, and their device */
    const gh_host_services *host;     /* empty slots are 0 */
    uint64_t bytes;                   /* that are out now */
};

/* As cuMemAlloc aligns, for several buffers in one piece. */
static inline uint64_t gh_memory_align(uint64_t bytes)
{
    return (bytes + 255) & ~UINT64_C(255);
}

gh_status gh_memory_alloc(struct gh_memory *memory, uint64_t bytes,
                          void **address_p, gh_error *err);
/* Work that uses it may still be on its way.  NULL is allowed. */
void gh_memory_free(struct gh_memory *memory, void *address, uint64_t bytes);

#endif
