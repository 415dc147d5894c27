/*
 * handle.c - the set of handles that are alive.
 *
 * Every entry point looks here before it follows a handle, so a stale or
 * invented handle is an error code instead of a crash.  The set is an
 * open-addressed table.  Removing shifts the run behind the hole, so there are
 * no tombstones, and a program that makes and destroys objects for ever keeps
 * the table small.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/handle.h"

#include <stdlib.h>

struct slot {
    const void *object;
    enum handle_kind kind;
};

static struct slot *slots;
static size_t n_slots, n_used;
static uint64_t live[N_HANDLE_KINDS];

static size_t home(const void *object)
{
    return (size_t)(((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20) &
           (n_slots - 1);
}

static struct slot *lookup(const void *object)
{
    size_t i = home(object);

    while (slots[i].object != NULL && slots[i].object != object) {
        i = (i + 1) & (n_slots - 1);
    }
    return &slots[i];
}

static bool grow(void)
{
    struct slot *old = slots;
    size_t n_old = n_slots;
    struct slot *larger = calloc(n_old ? n_old * 2 : 256, sizeof(*larger));

    if (larger == NULL) {
        return false;
    }
    slots = larger;
    n_slots = n_old ? n_old * 2 : 256;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].object != NULL) {
            *lookup(old[i].object) = old[i];
        }
    }
    free(old);
    return true;
}

bool handle_add(void *object, enum handle_kind kind)
{
    if (n_used * 2 >= n_slots && !grow()) {
        return false;
    }
    *lookup(object) = (struct slot){ object, kind };
    n_used++;
    live[kind]++;
    return true;
}

bool handle_is(const void *object, enum handle_kind kind)
{
    return object != NULL && n_slots != 0 && lookup(object)->kind == kind;
}

uint64_t handle_count(enum handle_kind kind)
{
    return live[kind];
}

void handle_remove(void *object)
{
    struct slot *slot = lookup(object);
    size_t hole = (size_t)(slot - slots);

    live[slot->kind]--;
    n_used--;
    for (size_t i = hole;;) {
        i = (i + 1) & (n_slots - 1);
        if (slots[i].object == NULL) {
            break;
        }
        /* Move it back unless its home lies behind the hole. */
        if (((i - home(slots[i].object)) & (n_slots - 1)) >=
            ((i - hole) & (n_slots - 1))) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole] = (struct slot){ NULL, HANDLE_FREE };
}
