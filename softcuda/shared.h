/*
 * shared.h - counts the owners of what is kept until an operation has run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SHARED_H
#define SOFTCUDA_SHARED_H

#include <stddef.h>
#include <stdint.h>

/* The first member of whatever it counts for: an event, an exec.  So work and
 * operations can keep one without knowing which it is. */
struct shared {
    uint32_t refs;
    void (*free)(struct shared *shared);
};

static inline struct shared *shared_ref(struct shared *shared)
{
    shared->refs++;
    return shared;
}

/* The last owner frees it.  NULL is nothing. */
static inline void shared_drop(struct shared *shared)
{
    if (shared != NULL && --shared->refs == 0) {
        shared->free(shared);
    }
}

#endif
