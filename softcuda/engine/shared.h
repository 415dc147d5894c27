/*
 * shared.h - counts the owners of something that must stay until an operation
 * has run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SHARED_H
#define SOFTCUDA_SHARED_H

#include <stddef.h>
#include <stdint.h>

/* The first member of what it counts for, such as an event or an exec.  So work
 * and operations can keep it without knowing what it is. */
struct shared {
    uint32_t refs;
    void (*free)(struct shared *shared);
};

static inline struct shared *shared_ref(struct shared *shared)
{
    shared->refs++;
    return shared;
}

/* Gives one reference up.  The last owner frees the object.  NULL is
 * allowed. */
static inline void shared_drop(struct shared *shared)
{
    if (shared != NULL && --shared->refs == 0) {
        shared->free(shared);
    }
}

#endif
