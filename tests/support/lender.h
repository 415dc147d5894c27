/*
 * lender.h - a host's allocator, for groups that are saved where it has put
 * them.
 *
 * Blocks of eager passes are used again on the stream that they were used on;
 * blocks of a recording stay its own, and are used again within it.  What comes
 * back is written over at once, on its stream, so that a copy that still reads
 * it is a race.  Whatever is returned twice, or not at all, is counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_LENDER_H
#define SUPPORT_LENDER_H

#include <graphhooks.h>

#include "driver/driver.h"

#include <stdbool.h>

struct toy;

struct lent_block {
    CUdeviceptr address;
    uint64_t bytes;
    CUstream stream;
    uint64_t recording; /* 0: of eager passes */
    bool out;           /* the library has it */
    bool is_free;
    struct lender *lender;
    struct lent_block *next;
};

struct lender {
    struct toy *toy;
    struct lent_block *blocks;
    uint64_t recording; /* that is open; 0: none */
    uint64_t recordings;
    gh_session *session; /* to call hooks from the service; NULL: it does not */
    uint64_t lent, returned;
    uint64_t wrong;       /* returned what was not lent */
    uint64_t hooks_taken; /* hooks that the service has called and that were
                             not refused */
};

/* For gh_host_services.released; its object is the block, so that it needs no
 * user. */
void lender_take_back(void *user, void *object);

/* A block on the stream, of the recording if there is one; NULL: no memory. */
struct lent_block *lender_find(struct lender *lender, uint64_t bytes,
                               CUstream stream);
/* The library has it, or has refused it. */
void lender_saved(struct lent_block *block, bool taken);
/* Those that the library has. */
uint64_t lender_still_out(const struct lender *lender);
uint64_t lender_bytes(const struct lender *lender, bool eager);
void lender_free(struct lender *lender);

#endif
