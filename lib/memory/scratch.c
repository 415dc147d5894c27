/*
 * scratch.c - see scratch.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/scratch.h"

static gh_status grow(struct gh_scratch *s, struct gh_memory *memory,
                      uint64_t bytes, gh_error *err)
{
    gh_status status;

    if (bytes <= s->bytes) {
        return GH_OK;
    }
    gh_memory_keep(memory, s->address, s->bytes);
    *s = (struct gh_scratch){ 0 };
    status = gh_device_alloc(memory->streams->dev, bytes, &s->address, err);
    if (status == GH_OK) {
        s->bytes = bytes;
    }
    return status;
}

gh_status gh_scratch_reserve(struct gh_scratch *s, struct gh_memory *memory,
                             uint64_t bytes, void *stream, gh_error *err)
{
    gh_status status = s->busy ? gh_device_stream_wait(memory->streams->dev,
                                                       s->stream, err)
                               : GH_OK;

    if (status == GH_OK) {
        status = grow(s, memory, bytes, err);
    }
    if (status == GH_OK) {
        s->stream = stream;
        s->busy = true;
    }
    return status;
}

bool gh_scratch_is_held(const struct gh_scratch *s, struct gh_device *dev)
{
    return s->busy && gh_device_host_captures(dev, s->stream);
}

void gh_scratch_free(struct gh_scratch *s, struct gh_device *dev)
{
    gh_device_free(dev, s->address);
    *s = (struct gh_scratch){ 0 };
}
