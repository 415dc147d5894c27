/*
 * copy.h - where the bytes of an instance lie, and its copies in the trace: for
 * copy_out.c and copy_back.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_COPY_H
#define GH_OFFLOAD_COPY_H

#include "offload/groups/state.h"

/* Where the run lies in a buffer, or in a block. */
static inline char *gh_run_at(void *base, const struct gh_run *run)
{
    return (char *)base + run->offset;
}

/* Begins the span of the copies in the trace, if there is one. */
static inline struct gh_span *gh_copy_trace(struct gh_offload *o,
                                            const struct gh_instance *i,
                                            enum gh_work work, void *stream)
{
    struct gh_span_what what = { .work = work };

    if (o->spans == NULL) {
        return NULL;
    }
    what.layer = i->group->layer;
    what.module = i->group->module;
    what.microbatch = i->microbatch;
    what.slot = i->slot;
    for (uint32_t r = 0; r < i->n_runs; r++) {
        what.bytes += i->runs[r].bytes;
    }
    return gh_spans_begin(o->spans, &what, stream);
}

#endif
