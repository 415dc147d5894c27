/*
 * retired.h - graphs of evicted banks, which are destroyed when they have
 * ended.
 *
 * They are not launched any more, but a launch may still run, and a step must
 * not wait for it.  So an event is recorded on each stream after the last
 * launch and queried later.
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
    void **objects; /* that they read; released after them */
    uint32_t n_objects;
    void **marks;     /* an event for each stream; NULL: not recorded yet, as
                         the host was capturing the stream */
    uint32_t n_marks; /* the number of streams known at the eviction */
};

/* Makes room for `n` graphs, all launches of which were issued, and records the
 * events.  NULL: no memory, and nothing has changed. */
struct gh_retired *gh_retired_create(uint32_t n, void **objects,
                                     uint32_t n_objects,
                                     const struct gh_streams *streams);
/* Destroys the graphs that have ended.  Never waits. */
void gh_retired_poll(struct gh_retired **list, const struct gh_memory *memory);
/* Destroys all graphs.  None of them runs. */
void gh_retired_free_all(struct gh_retired **list,
                         const struct gh_memory *memory);

/* Releases the objects and frees the list of them. */
void gh_retired_release(void **objects, uint32_t n,
                        const struct gh_memory *memory);

#endif
