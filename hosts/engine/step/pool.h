/*
 * pool.h - the engine's own sets of activations.
 *
 * A microbatch leases a set from its first forward to its last backward.  The
 * next one to lease it may be on another stream, so it then waits for the
 * event that ends its predecessor's backward.  The sets of the library's
 * slots are not here: their order is the library's business.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_POOL_H
#define ENGINE_POOL_H

#include "model/buffers.h"

struct pooled {
    struct set set;
    bool leased;
    int last; /* the last microbatch of this step that had it; -1: none */
};

struct pool {
    struct device *dev;
    const struct model *model;
    struct pooled **members;
    int n;
};

void pool_init(struct pool *pool, const struct model *model,
               struct device *dev);
void pool_free(struct pool *pool);

/* Forgets who had which set, because everything before has ended or is
 * ordered. */
void pool_begin_step(struct pool *pool);

/* Leases a free set, and makes one if there is none.  NULL: dev->error.  `last`
 * says which microbatch's end to wait for. */
struct pooled *pool_lease(struct pool *pool);
void pool_return(struct pooled *pooled, int microbatch);

#endif
