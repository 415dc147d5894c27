/*
 * work.c - one piece of work: its arguments, and what it holds.
 *
 * The same struct serves an operation on a stream and a node of a graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOB_KEPT = 4096 /* larger ones are freed with the op */
};

bool work_reserve(struct work *work, size_t bytes)
{
    char *blob;

    if (bytes <= work->blob_room) {
        return true;
    }
    blob = malloc(bytes < 256 ? 256 : bytes);
    if (blob == NULL) {
        return false;
    }
    free(work->blob);
    work->blob = blob;
    work->blob_room = bytes < 256 ? 256 : bytes;
    return true;
}

void work_params(struct work *work, void *const *params)
{
    const struct kernel *kernel = work->u.k.kernel;
    void **pointers = (void **)(void *)work->blob;

    for (uint32_t i = 0; i < kernel->fn.n_params; i++) {
        pointers[i] = work->blob + kernel->offsets[i];
        memcpy(pointers[i], params[i], kernel->fn.param_bytes[i]);
    }
}

bool work_clone(struct work *to, const struct work *from)
{
    *to = *from;
    to->blob = NULL;
    to->blob_room = 0;
    if (from->kind == WORK_KERNEL) {
        if (!work_reserve(to, from->u.k.kernel->blob_bytes)) {
            to->kind = WORK_NONE;
            return false;
        }
        work_params(to, (void *const *)(const void *)from->blob);
    } else if (from->kept != NULL) {
        shared_ref(to->kept);
    }
    return true;
}

void work_move(struct work *to, struct work *from)
{
    *to = *from;
    from->kind = WORK_NONE;
    from->kept = NULL;
    from->blob = NULL;
    from->blob_room = 0;
}

void work_clear(struct work *work)
{
    shared_drop(work->kept);
    work->kept = NULL;
    work->kind = WORK_NONE;
    work->ctx = NULL;
    if (work->blob_room > BLOB_KEPT) {
        free(work->blob);
        work->blob = NULL;
        work->blob_room = 0;
    }
}

const char *work_name(const struct work *work)
{
    static const char *const copies[3][3] = {
        { "copy DtoD", "copy HtoD", "copy HtoD" },
        { "copy DtoH", "copy HtoH", "copy HtoH" },
        { "copy DtoH", "copy HtoH", "copy HtoH" }
    };

    switch (work->kind) {
    case WORK_KERNEL:
        return work->u.k.kernel->fn.name;
    case WORK_COPY:
        return copies[work->u.copy.dst_side][work->u.copy.src_side];
    case WORK_SET:
        return "memset";
    case WORK_DISCARD:
        return "discard";
    case WORK_HOST:
        return "host function";
    case WORK_AWAIT:
        return "stream wait value";
    case WORK_POKE:
        return "stream write value";
    case WORK_RECORD:
        return "event record";
    case WORK_WAIT:
        return "event wait";
    case WORK_CALL:
    case WORK_ARRIVE:
    case WORK_LEAVE:
    case WORK_RENDEZVOUS:
        return work->u.rendezvous.name;
    case WORK_NONE:
        break;
    }
    return "nothing";
}
