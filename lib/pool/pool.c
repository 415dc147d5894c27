/*
 * pool.c - see pool.h.
 *
 * Allocators that take plain functions say nothing of which pool they mean, so
 * each pool has functions of its own, and there are as many pools as there are
 * of those.  A pool that is destroyed keeps its place until its memory is
 * freed.
 *
 * What is freed while nobody can wait for the device is kept, and goes once
 * somebody has waited, for whichever pool.  No alloc waits: where a stream is
 * captured that would end the capture.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pool/pool.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/path.h"
#include "device/device.h"
#include "memory/arena.h"

#include <pthread.h>
#include <stdio.h>

struct gh_pool {
    struct gh_device *dev; /* NULL: the place is free */
    struct gh_arena arena;
    struct gh_log log;
    bool destroyed, suspended;
    bool said; /* that what was freed is not the pool's */
    uint64_t given, suspend_ns, resume_ns;
};

#define EACH(x) \
    x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) \
        x(14) x(15)
#define ONE(i) +1

enum {
    N_POOLS = EACH(ONE)
};

/* Of all pools; a call of the driver is what takes time in it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gh_pool pools[N_POOLS];

/* ---- a place ------------------------------------------------------------- */

static void leave_place(struct gh_pool *pool)
{
    struct gh_device *dev = pool->dev;

    gh_arena_close(&pool->arena);
    *pool = (struct gh_pool){ 0 };
    gh_device_close(dev);
}

/* Of those that are destroyed, and have no memory any more. */
static void leave_places(void)
{
    for (int i = 0; i < N_POOLS; i++) {
        if (pools[i].destroyed && pools[i].arena.regions == NULL) {
            leave_place(&pools[i]);
        }
    }
}

static gh_status take_place(struct gh_device *dev, const struct gh_log *log,
                            struct gh_pool **pool_p, gh_error *err)
{
    for (int i = 0; i < N_POOLS; i++) {
        if (pools[i].dev == NULL) {
            pools[i] = (struct gh_pool){ .dev = dev, .log = *log };
            *pool_p = &pools[i];
            return GH_OK;
        }
    }
    return gh_fail(err, GH_ERR_BUSY,
                   "gh_pool_create: the process has %d pools, which is the "
                   "most: destroy one, and free all that it has given",
                   N_POOLS);
}

gh_status gh_pool_open(struct gh_device *dev, const struct gh_log *log,
                       gh_pool **pool_p, gh_error *err)
{
    struct gh_pool *pool = NULL;
    gh_status status;

    pthread_mutex_lock(&lock);
    status = take_place(dev, log, &pool, err);
    if (status == GH_OK) {
        status = gh_arena_open(&pool->arena, dev, err);
        pool->arena.exact = true;
        if (status != GH_OK) {
            *pool = (struct gh_pool){ 0 };
        }
    }
    pthread_mutex_unlock(&lock);
    if (status == GH_OK) {
        *pool_p = pool;
    }
    return status;
}

void gh_pool_close(gh_pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->destroyed = true;
    leave_places();
    pthread_mutex_unlock(&lock);
}

/* ---- pieces -------------------------------------------------------------- */

GH_ASIDE static void *alloc_in(struct gh_pool *pool, int64_t bytes)
{
    void *address = NULL;

    pthread_mutex_lock(&lock);
    if (pool->dev != NULL && !pool->destroyed && !pool->suspended &&
        bytes > 0) {
        struct gh_device_before before = gh_device_enter(pool->dev);

        (void)gh_arena_alloc(&pool->arena, (uint64_t)bytes, &address, NULL);
        gh_device_leave(pool->dev, before);
    }
    pthread_mutex_unlock(&lock);
    return address;
}

/* All work of the device's context has ended. */
static void trim_all(const struct gh_device *dev)
{
    for (int i = 0; i < N_POOLS; i++) {
        if (pools[i].dev != NULL &&
            gh_device_context(pools[i].dev) == gh_device_context(dev)) {
            gh_arena_trim(&pools[i].arena);
        }
    }
}

static void give(struct gh_pool *pool, void *address, int64_t bytes)
{
    struct gh_device *dev = pool->dev;
    struct gh_device_before before = gh_device_enter(dev);

    gh_arena_free(&pool->arena, address, (uint64_t)bytes, !pool->suspended);
    /* Work that failed uses nothing any more. */
    if (!pool->suspended && gh_device_wait(dev, NULL) != GH_ERR_STATE) {
        trim_all(dev);
    }
    gh_device_leave(dev, before);
    leave_places();
}

/* Who frees cannot be told that it has failed. */
GH_COLD static void say(struct gh_pool *pool, const void *address,
                        int64_t bytes, const void *there, uint64_t whole)
{
    char has[64] = "nothing";

    if (there != NULL) {
        snprintf(has, sizeof(has), "%llu bytes at %p",
                 (unsigned long long)whole, there);
    }
    if (!pool->said) {
        pool->said = true;
        gh_log_line(&pool->log, GH_LOG_WARN,
                    "gh_pool_functions.free: %p with %lld bytes is not what "
                    "alloc gave: the pool has %s there, and frees nothing; "
                    "free each block once, with its address and its bytes",
                    address, (long long)bytes, has);
    }
}

static void free_in(struct gh_pool *pool, void *address, int64_t bytes)
{
    const void *there;
    uint64_t whole;

    pthread_mutex_lock(&lock);
    if (pool->dev != NULL && address != NULL) {
        if (gh_arena_has(&pool->arena, address, (uint64_t)bytes, &there,
                         &whole)) {
            give(pool, address, bytes);
        } else {
            say(pool, address, bytes, there, whole);
        }
    }
    pthread_mutex_unlock(&lock);
}

#define FUNCTIONS(i) \
    static void *alloc_##i(int64_t bytes, int device, void *stream) \
    { \
        (void)device; \
        (void)stream; \
        return alloc_in(&pools[i], bytes); \
    } \
    static void free_##i(void *address, int64_t bytes, int device, \
                         void *stream) \
    { \
        (void)device; \
        (void)stream; \
        free_in(&pools[i], address, bytes); \
    }
EACH(FUNCTIONS)

#define ENTRY(i) { .alloc = alloc_##i, .free = free_##i },
static const gh_pool_functions all_functions[N_POOLS] = { EACH(ENTRY) };

void gh_pool_find_functions(const gh_pool *pool, gh_pool_functions *functions)
{
    *functions = all_functions[pool - pools];
}

/* ---- to suspend, and to resume ------------------------------------------- */

/* Memory of which some could not be given back is taken again.  Where that
 * fails too, the pool is suspended, with less than it could have given. */
static gh_status give_all(struct gh_pool *pool, gh_error *err)
{
    const uint64_t mapped = pool->arena.mapped;
    gh_status status;
    gh_error why;

    status = gh_device_wait(pool->dev, &why);
    if (status != GH_OK) {
        return gh_fail(err, status, "gh_pool_suspend: %s", why.text);
    }
    trim_all(pool->dev);
    status = gh_arena_unmap(&pool->arena, err);
    if (status != GH_OK && gh_arena_map(&pool->arena, NULL) == GH_OK) {
        return status;
    }
    pool->given = mapped - pool->arena.mapped;
    pool->suspended = true;
    return GH_OK;
}

gh_status gh_pool_give(gh_pool *pool, gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status;

    pthread_mutex_lock(&lock);
    if (pool->suspended) {
        status = gh_fail(err, GH_ERR_STATE,
                         "gh_pool_suspend: the pool is suspended: call "
                         "gh_pool_resume first");
    } else {
        struct gh_device_before before = gh_device_enter(pool->dev);

        status = give_all(pool, err);
        gh_device_leave(pool->dev, before);
        leave_places();
        pool->suspend_ns = gh_now_ns() - start;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

gh_status gh_pool_take(gh_pool *pool, gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status;

    pthread_mutex_lock(&lock);
    if (!pool->suspended) {
        status = gh_fail(err, GH_ERR_STATE,
                         "gh_pool_resume: the pool is not suspended: call "
                         "gh_pool_suspend first");
    } else {
        struct gh_device_before before = gh_device_enter(pool->dev);

        status = gh_arena_map(&pool->arena, err);
        gh_device_leave(pool->dev, before);
        pool->suspended = status != GH_OK;
        pool->resume_ns = gh_now_ns() - start;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void gh_pool_count(const gh_pool *pool, gh_pool_stats *stats)
{
    pthread_mutex_lock(&lock);
    *stats = (gh_pool_stats){ .suspended = pool->suspended,
                              .bytes = pool->arena.mapped,
                              .given = pool->given,
                              .suspend_ns = pool->suspend_ns,
                              .resume_ns = pool->resume_ns };
    pthread_mutex_unlock(&lock);
}
