/*
 * scratch.h - device memory that grows to what is asked, for one stream at a
 * time.  The driver's own: a host's pools are not for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_SCRATCH_H
#define GH_MEMORY_SCRATCH_H

#include "device/device.h"

struct gh_scratch {
    void *address;
    uint64_t bytes;
    void *stream; /* the one that uses it, until that has been waited for */
    bool busy;
};

/* At least so many bytes, for work on the stream.  Waits for the stream that
 * has used it last. */
gh_status gh_scratch_reserve(struct gh_scratch *scratch, struct gh_device *dev,
                             uint64_t bytes, void *stream, gh_error *err);
/* Whether the stream that has used it last cannot be waited for, as the host
 * captures it now. */
bool gh_scratch_is_held(const struct gh_scratch *scratch,
                        struct gh_device *dev);
void gh_scratch_free(struct gh_scratch *scratch, struct gh_device *dev);

#endif
