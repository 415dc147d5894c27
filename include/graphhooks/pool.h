/*
 * graphhooks/pool.h - device memory for a host's allocator, which can be given
 * back and taken again at the same addresses.
 *
 * Graphs that a host captures hold addresses of the host's own memory too.
 * What its allocator has from a pool goes back to the driver while the pool is
 * suspended, and its addresses stay reserved:
 *
 *     gh_pool_create(&desc, &pool, &err);
 *     gh_pool_get_functions(pool, &functions, &err);
 *     ...                              captures allocate by functions.alloc
 *     gh_pool_suspend(pool, &err);     nothing there is needed any more
 *     ...                              others use the memory
 *     gh_pool_resume(pool, &err);
 *     ...                              graphs replay as before
 *     gh_pool_destroy(pool);
 *
 * Nothing is saved: what the memory held is lost.  The functions are those that
 * torch.cuda.memory.CUDAPluggableAllocator takes, of which a torch.cuda.MemPool
 * is made; doc/memory.md has more.
 *
 * Threads: any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_POOL_H
#define GRAPHHOOKS_POOL_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

typedef struct gh_pool gh_pool;

/** A pool.  Zero the struct, then set struct_size.  Since 1.0. */
typedef struct gh_pool_desc {
    uint32_t struct_size;
    uint32_t flags;     /* must be 0 */
    const char *driver; /* as gh_session_desc.driver.  GRAPHHOOKS_DRIVER */
    void *context;      /* as gh_session_desc.context */
    int32_t device;     /* as gh_session_desc.device */
    uint32_t reserved;  /* must be 0 */
    /* As gh_session_desc.environment.  Read during the call. */
    const char *const *environment;
} gh_pool_desc;

/**
 * How a pool gives memory, to allocators that have no pointer of their own to
 * hand over.  Set struct_size before the call.  Each pool has other functions,
 * which may be called for as long as it has memory, from any thread, and while
 * streams are captured.  Since 1.0.
 */
typedef struct gh_pool_functions {
    uint32_t struct_size;
    uint32_t reserved; /* is 0 */

    /* Memory of `bytes`, rounded up to what the device maps, which is 2 MiB, at
     * an address that is a multiple of that; NULL: there is none, or the pool
     * is suspended.  `device` and `stream` are not looked at. */
    void *(*alloc)(int64_t bytes, int device, void *stream);

    /* Gives one back, also of a pool that is suspended or destroyed: `address`
     * is what alloc returned, and `bytes` what it was asked for.  Anything else
     * frees nothing, and the first time the log says so (GH_LOG_WARN).
     *
     * Blocks: until the device has ended its work, as it may use the memory.
     * Where a stream is captured nobody can wait for that.  The memory then
     * stays until the next free or gh_pool_suspend() on this device that can
     * wait, of any pool, and the capture fares as in gh_pool_suspend(). */
    void (*free)(void *address, int64_t bytes, int device, void *stream);
} gh_pool_functions;

/**
 * Make a pool, without memory.
 *
 * @param      desc    read during the call only
 * @param[out] pool_p  the pool, until gh_pool_destroy()
 *
 * @return GH_OK; GH_ERR_UNSUPPORTED where the device cannot map memory to
 *         reserved addresses; GH_ERR_BUSY where the process has 16 pools that
 *         are in use, or destroyed with memory that nobody has freed;
 *         GH_ERR_CONFIG for a bad option; GH_ERR_NO_DRIVER; GH_ERR_DEVICE;
 *         GH_ERR_NO_MEMORY; GH_ERR_INVALID or GH_ERR_ABI for a bad description.
 * Blocks: never.  Since: 1.0.
 */
GH_API gh_status gh_pool_create(const gh_pool_desc *desc, gh_pool **pool_p,
                                gh_error *err);

/**
 * Destroy a pool; NULL is allowed.  What it has given stays where it is until
 * it is freed by the pool's function.  Of a suspended pool that memory has none
 * behind it.
 *
 * Blocks: never.  Since: 1.0.
 */
GH_API void gh_pool_destroy(gh_pool *pool);

/**
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         struct.
 * Blocks: never.  Since: 1.0.
 */
GH_API gh_status gh_pool_get_functions(const gh_pool *pool,
                                       gh_pool_functions *functions,
                                       gh_error *err);

/**
 * Give the memory back, and keep the addresses.  Nobody needs what it holds,
 * and no graph that uses it is launched before gh_pool_resume().
 *
 * Not while a stream is captured.  The capture lasts if the legacy stream waits
 * for that stream; of one that was made with CU_STREAM_NON_BLOCKING the pool
 * does not know in time, and its capture may be invalid then.
 *
 * @return GH_OK; GH_ERR_STATE for a suspended pool, or where a stream is
 *         captured; GH_ERR_DEVICE: the pool has its memory, but not its
 *         content; GH_ERR_INVALID.
 * Blocks: until the device has ended its work.  Since: 1.0.
 */
GH_API gh_status gh_pool_suspend(gh_pool *pool, gh_error *err);

/**
 * Take memory again, at the same addresses.  It holds anything.
 *
 * @return GH_OK; GH_ERR_STATE for a pool that is not suspended;
 *         GH_ERR_NO_MEMORY or GH_ERR_DEVICE: the pool is suspended still; call
 *         it again once there is memory.
 * Blocks: while the driver allocates.  Since: 1.0.
 */
GH_API gh_status gh_pool_resume(gh_pool *pool, gh_error *err);

/** What a pool has.  Set struct_size before the call.  Since 1.0. */
typedef struct gh_pool_stats {
    uint32_t struct_size;
    uint32_t suspended;  /* 1: gh_pool_resume() is to come */
    uint64_t bytes;      /* device memory, now */
    uint64_t given;      /* given back by the last gh_pool_suspend() */
    uint64_t suspend_ns; /* host time of the last gh_pool_suspend(), with its
                            wait */
    uint64_t resume_ns;  /* and of the last gh_pool_resume() */
} gh_pool_stats;

/**
 * Read what a pool has.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         struct.
 * Blocks: never.  Since: 1.0.
 */
GH_API gh_status gh_pool_get_stats(const gh_pool *pool, gh_pool_stats *stats,
                                   gh_error *err);

GH_END_DECLS

#endif
