/*
 * pool.c - see pool.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pool.h"

#include <stdlib.h>
#include <string.h>

void pool_init(struct pool *pool, const struct model *model, struct device *dev)
{
    memset(pool, 0, sizeof(*pool));
    pool->dev = dev;
    pool->model = model;
}

void pool_free(struct pool *pool)
{
    for (int i = 0; i < pool->n; i++) {
        set_free(&pool->members[i]->set);
        free(pool->members[i]);
    }
    free(pool->members);
    pool->members = NULL;
    pool->n = 0;
}

void pool_begin_step(struct pool *pool)
{
    for (int i = 0; i < pool->n; i++) {
        pool->members[i]->leased = false;
        pool->members[i]->last = -1;
    }
}

static struct pooled *add(struct pool *pool)
{
    struct pooled *added = calloc(1, sizeof(*added));
    struct pooled **members =
        realloc(pool->members, (size_t)(pool->n + 1) * sizeof(*members));

    if (members != NULL) {
        pool->members = members;
    }
    if (added == NULL || members == NULL) {
        (void)device_check(pool->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        goto err_added;
    }
    if (set_init(&added->set, pool->model, pool->dev) != 0) {
        goto err_added;
    }
    added->last = -1;
    pool->members[pool->n++] = added;
    return added;

err_added:
    free(added);
    return NULL;
}

/* Leases the set that was given back first, so that streams overlap most. */
struct pooled *pool_lease(struct pool *pool)
{
    struct pooled *found = NULL;

    for (int i = 0; i < pool->n; i++) {
        struct pooled *member = pool->members[i];

        if (!member->leased && (found == NULL || member->last < found->last)) {
            found = member;
        }
    }
    if (found == NULL) {
        found = add(pool);
    }
    if (found != NULL) {
        found->leased = true;
    }
    return found;
}

void pool_return(struct pooled *pooled, int microbatch)
{
    pooled->leased = false;
    pooled->last = microbatch;
}
