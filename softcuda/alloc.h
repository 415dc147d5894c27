/*
 * alloc.h - the table of what is allocated, by address.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ALLOC_H
#define SOFTCUDA_ALLOC_H

#include "driver/driver.h"

#include <stddef.h>
#include <stdint.h>

enum side {
    SIDE_DEVICE,
    SIDE_PINNED,
    SIDE_PAGEABLE, /* the program's own: in no table */
    N_SIDES
};

/* Who accessed which bytes; kept by race.c. */
struct shadow {
    struct shadow_entry *entries;
    uint32_t n, room;
};

struct hole {
    size_t first, end;
};

/* What no call has written; kept by unwritten.c. */
struct holes {
    struct hole *v;
    uint32_t n, room;
};

/* A name that the program has given to bytes, for what it issues from then on;
 * and for whom bytes were written.  Kept by labels.c. */
struct place {
    size_t first, end;
    uint64_t from_seq;
    uint32_t name;
};
struct content {
    size_t start;
    uint32_t name;
};
struct labels {
    struct place *places; /* the later ones count */
    struct content *contents;
    uint32_t n_places, places_room, n_contents, contents_room;
};

/* Words that something has written by themselves; kept by flags.c. */
struct flags {
    struct flag *v;
    uint32_t n, room;
};

struct alloc {
    uintptr_t base;
    size_t bytes;
    enum side side;
    CUcontext ctx;
    uint64_t number; /* from 1, in the order of allocation */
    struct shadow shadow;
    struct holes holes;
    uint64_t fresh; /* of pinned memory: what it began with, see fresh.c */
    struct labels labels;
    struct flags flags;
};

/* What is allocated on one side. */
struct tally {
    uint64_t n, bytes;
};

/* NULL when there is no memory for the table. */
struct alloc *alloc_add(void *base, size_t bytes, enum side side,
                        CUcontext ctx);
/* Whoever keeps something in it has cleared that. */
void alloc_remove(struct alloc *alloc);
/* The allocation that holds the whole range, or NULL. */
struct alloc *alloc_find(const void *address, size_t bytes);
/* By address; NULL after the last. */
struct alloc *alloc_nth(size_t i);
struct tally alloc_tally(enum side side);

#endif
