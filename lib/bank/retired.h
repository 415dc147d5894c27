/*
 * retired.h - graphs that are launched no more, until none of them can run.
 *
 * A step does not wait for them: each stream is marked behind the last launch,
 * and the marks are looked at now and then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_RETIRED_H
#define GH_BANK_RETIRED_H

#include "bank/entry.h"
#include "memory/memory.h"

struct gh_retired {
    struct gh_retired *next;
    struct gh_entry *entries;
    uint32_t n_entries;
    void **objects; /* that they read: host->release has them after */
    uint32_t n_objects;
    void **marks;     /* an event a stream; NULL: not marked yet, as the host
                         was capturing it */
    uint32_t n_marks; /* streams that were known then */
};

/* Room for `n` graphs, of which every launch is issued.  NULL: no memory, and
 * nothing has changed. */
struct gh_retired *gh_retired_create(uint32_t n, void **objects,
                                     uint32_t n_objects,
                                     const struct gh_streams *streams);
/* Destroys those that no launch runs of any more. */
void gh_retired_poll(struct gh_retired **list, const struct gh_memory *memory);
/* All of them: nothing runs. */
void gh_retired_free_all(struct gh_retired **list,
                         const struct gh_memory *memory);

/* Releases the objects and frees the list of them. */
void gh_retired_release(void **objects, uint32_t n,
                        const struct gh_memory *memory);

#endif
