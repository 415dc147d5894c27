/*
 * alloc.h - the table of allocations, by address.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_ALLOC_H
#define SOFTCUDA_ALLOC_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum side {
    SIDE_DEVICE,
    SIDE_PINNED,
    SIDE_PAGEABLE, /* the program's own, in no table */
    N_SIDES
};

/* Who accessed which bytes.  race.c keeps it. */
struct shadow {
    struct shadow_entry *entries;
    uint32_t n, room;
};

struct hole {
    size_t first, end;
};

/* Which bytes no call has written.  unwritten.c keeps it. */
struct holes {
    struct hole *v;
    uint32_t n, room;
};

/* A name that the program gave to a range of bytes, for what it issues after
 * that; and for which name each range was written.  labels.c keeps them. */
struct named_range {
    size_t first, end;
    uint64_t from_seq;
    uint32_t name;
};
struct content {
    size_t start;
    uint32_t name;
};
struct labels {
    struct named_range *ranges; /* later ones win */
    struct content *contents;
    uint32_t n_ranges, ranges_room, n_contents, contents_room;
};

/* Words that were written by themselves.  flags.c keeps them. */
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
    uint32_t discards; /* of parts of it */
    uint32_t shared;   /* bits of the devices that have opened a handle of it */
    struct outside *outside; /* NULL: no other process can map it */
    struct backing *backing; /* what is mapped there; NULL: nothing is */
    bool no_access;          /* it is mapped, and may not be used */
    uint64_t pattern;  /* of pinned memory: what it began with, see
                          pinned_pattern.c */
    struct labels labels;
    struct flags flags;
};

/* How much is allocated on one side. */
struct tally {
    uint64_t n, bytes;
};

/* NULL if there is no memory for the table. */
struct alloc *alloc_add(void *base, size_t bytes, enum side side,
                        CUcontext ctx);
/* All that was kept for the allocation must have been cleared before. */
void alloc_remove(struct alloc *alloc);
/* The allocation that holds the whole range; NULL: there is none. */
struct alloc *alloc_find(const void *address, size_t bytes);
/* The i-th allocation by address; NULL after the last. */
struct alloc *alloc_nth(size_t i);
struct tally alloc_tally(enum side side);

#endif
