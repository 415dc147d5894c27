/*
 * pinned.h - pinned host memory, in blocks that are used again and again.
 *
 * A block is a size and an event.  Its owner waits for the event before every
 * copy from or to the block, as the last one may be of an owner before, and
 * records it after.  Where the driver refuses the record, the next wait makes up
 * for it, so that a block may be given back whatever has failed.  Giving back is O(1); taking is O(1) in the blocks, and
 * linear in the sizes that a session has, which are few.  Blocks that were
 * given back go to the driver only at the end, or when they are trimmed.
 * Blocks are on the NUMA node of the device, where the machine tells it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_PINNED_H
#define GH_MEMORY_PINNED_H

#include "device/device.h"

struct gh_pinned_block {
    void *address; /* NULL: suspended */
    uint64_t bytes;
    void *copied;                 /* an event, after the last copy */
    bool used;                    /* `copied` has been recorded */
    void *unmarked; /* a stream whose copies `copied` does not cover yet; NULL:
                       there is none.  It lives as long as the block. */
    struct gh_pinned_size *size;
    struct gh_pinned_block *next; /* of its size: free; else of all */
    struct gh_pinned_block *older;
};

/* The blocks of one size. */
struct gh_pinned_size {
    uint64_t bytes;
    struct gh_pinned_block *free;
    struct gh_pinned_size *next;
};

struct gh_pinned {
    struct gh_device *dev;
    uint64_t limit; /* bytes; 0: none */
    uint64_t least; /* bytes of all blocks when the driver refused more, at the
                       fewest; UINT64_MAX: it has not */
    uint64_t bytes; /* of all blocks */
    uint64_t in_use, peak; /* bytes that are taken, now and at most */
    int node;              /* the nearest node of the host's memory; or
                              GH_NUMA_UNKNOWN */
    int refused;           /* errno if the kernel gives no memory of that node;
                              or 0 */
    struct gh_pinned_size *sizes;
    struct gh_pinned_block *newest; /* of all */
};

void gh_pinned_init(struct gh_pinned *pinned, struct gh_device *dev,
                    uint64_t limit);
/* No copy may still be running. */
void gh_pinned_free(struct gh_pinned *pinned);

/* GH_ERR_NO_MEMORY if the limit or the driver refuses. */
gh_status gh_pinned_take(struct gh_pinned *pinned, uint64_t bytes,
                         struct gh_pinned_block **block_p, gh_error *err);
void gh_pinned_give_back(struct gh_pinned *pinned,
                         struct gh_pinned_block *block);
/* Gives the driver the blocks of a size that nobody has, but so many.  No copy
 * of them may still be running. */
void gh_pinned_trim(struct gh_pinned *pinned, uint64_t bytes, uint64_t keep);
/* GH_ERR_NO_MEMORY if so many blocks of the size cannot be taken now. */
gh_status gh_pinned_ask(const struct gh_pinned *pinned, uint64_t bytes,
                        uint32_t n, gh_error *err);
/* Gives the driver the memory of all blocks, which nobody has and no copy uses,
 * and returns how many bytes that were.  The blocks stay. */
uint64_t gh_pinned_suspend(struct gh_pinned *pinned);
/* Takes memory for blocks that have none.  It may have another address than
 * before.  If it fails, some may have memory: call it again. */
gh_status gh_pinned_resume(struct gh_pinned *pinned, gh_error *err);
/* The bytes that all blocks may have: the limit, or what there was when the
 * driver refused more.  UINT64_MAX: nothing is known. */
uint64_t gh_pinned_room(const struct gh_pinned *pinned);

/* Before a copy from or to the block: the stream waits for the last one. */
gh_status gh_pinned_wait(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *err);
/* After it: the next copy waits for what the stream has so far. */
gh_status gh_pinned_mark(const struct gh_pinned *pinned,
                         struct gh_pinned_block *block, void *stream,
                         gh_error *err);

#endif
