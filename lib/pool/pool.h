/*
 * pool.h - pieces of an arena, given by functions without a pointer.
 *
 * lib/abi is the caller, and has checked the host's arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_POOL_POOL_H
#define GH_POOL_POOL_H

#include <graphhooks/pool.h>

#include "base/log.h"

struct gh_device;

/* The pool has the device from then on, if it opens. */
gh_status gh_pool_open(struct gh_device *dev, const struct gh_log *log,
                       gh_pool **pool_p, gh_error *err);
void gh_pool_close(gh_pool *pool);
void gh_pool_find_functions(const gh_pool *pool, gh_pool_functions *functions);

gh_status gh_pool_give(gh_pool *pool, gh_error *err);
gh_status gh_pool_take(gh_pool *pool, gh_error *err);
void gh_pool_count(const gh_pool *pool, gh_pool_stats *stats);

#endif
