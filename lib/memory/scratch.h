/*
 * scratch.h - device memory that grows as needed, for one stream at a time.
 *
 * It comes from the driver; the host's memory services are not used.  It grows
 * within steps, where nothing is freed: see memory.h.  What it has outgrown
 * stays until the session closes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_SCRATCH_H
#define GH_MEMORY_SCRATCH_H

#include "memory/memory.h"

struct gh_scratch {
    void *address;
    uint64_t bytes;
    void *stream; /* the stream that uses it, until that was waited for */
    bool busy;
};

/* Makes at least so many bytes ready for work on the stream.  Waits for the
 * stream that used it last. */
gh_status gh_scratch_reserve(struct gh_scratch *scratch,
                             struct gh_memory *memory, uint64_t bytes,
                             void *stream, gh_error *err);
/* Whether the stream that used it last cannot be waited for, because the host
 * captures it now. */
bool gh_scratch_is_held(const struct gh_scratch *scratch,
                        struct gh_device *dev);
void gh_scratch_free(struct gh_scratch *scratch, struct gh_device *dev);

#endif
