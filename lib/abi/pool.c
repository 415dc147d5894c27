/*
 * pool.c - the calls of graphhooks/pool.h: checks what the host hands over,
 * reads the options, then lets lib/pool work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/pool.h>

#include "base/error.h"
#include "base/size.h"
#include "config/env.h"
#include "device/device.h"
#include "pool/pool.h"

#include <stdlib.h>

static gh_status take_desc(const gh_pool_desc *given, gh_pool_desc *desc,
                           gh_error *err)
{
    gh_status status;

    if (given == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_pool_create: desc is NULL");
    }
    status = gh_check_size("gh_pool_desc", given,
                           GH_SIZE_THROUGH(gh_pool_desc, environment),
                           sizeof(*desc), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, desc, sizeof(*desc));
    if (desc->flags != 0 || desc->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pool_desc.flags is 0x%x, and reserved %u: zero "
                       "both",
                       desc->flags, desc->reserved);
    }
    return GH_OK;
}

static gh_status create(const struct gh_env *env, const gh_pool_desc *desc,
                        gh_pool **pool_p, gh_error *err)
{
    const struct gh_log log = { env->log, gh_log_stderr, NULL };
    struct gh_device *dev;
    gh_status status =
        gh_device_open(env->driver, desc->context, desc->device, &dev, err);

    if (status != GH_OK) {
        return status;
    }
    status = gh_pool_open(dev, &log, pool_p, err);
    if (status != GH_OK) {
        gh_device_close(dev);
    }
    return status;
}

gh_status gh_pool_create(const gh_pool_desc *given, gh_pool **pool_p,
                         gh_error *err)
{
    gh_pool_desc desc;
    struct gh_env *env;
    gh_status status;

    if (pool_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_pool_create: pool_p is NULL");
    }
    status = take_desc(given, &desc, err);
    if (status != GH_OK) {
        return status;
    }
    env = malloc(sizeof(*env));
    if (env == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the options");
    }
    status = gh_env_load_with(desc.environment,
                              &(struct gh_env_offer){ GH_ENV_DRIVER,
                                                      "gh_pool_desc.driver",
                                                      desc.driver },
                              1, env, err);
    if (status == GH_OK) {
        status = create(env, &desc, pool_p, err);
    }
    free(env);
    return status;
}

void gh_pool_destroy(gh_pool *pool)
{
    if (pool != NULL) {
        gh_pool_close(pool);
    }
}

static gh_status check(const gh_pool *pool, const char *call, gh_error *err)
{
    return pool != NULL
               ? GH_OK
               : gh_fail(err, GH_ERR_INVALID, "%s: pool is NULL", call);
}

gh_status gh_pool_get_functions(const gh_pool *pool,
                                gh_pool_functions *functions, gh_error *err)
{
    gh_pool_functions ours;
    gh_status status = check(pool, "gh_pool_get_functions", err);

    if (status != GH_OK) {
        return status;
    }
    if (functions == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pool_get_functions: functions is NULL");
    }
    status = gh_check_size("gh_pool_functions", functions,
                           GH_SIZE_THROUGH(gh_pool_functions, free),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_pool_find_functions(pool, &ours);
    gh_give_struct(functions, &ours, sizeof(ours));
    return GH_OK;
}

gh_status gh_pool_suspend(gh_pool *pool, gh_error *err)
{
    const gh_status status = check(pool, "gh_pool_suspend", err);

    return status == GH_OK ? gh_pool_give(pool, err) : status;
}

gh_status gh_pool_resume(gh_pool *pool, gh_error *err)
{
    const gh_status status = check(pool, "gh_pool_resume", err);

    return status == GH_OK ? gh_pool_take(pool, err) : status;
}

gh_status gh_pool_get_stats(const gh_pool *pool, gh_pool_stats *stats,
                            gh_error *err)
{
    gh_pool_stats ours;
    gh_status status = check(pool, "gh_pool_get_stats", err);

    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_pool_get_stats: stats is NULL");
    }
    status = gh_check_size("gh_pool_stats", stats,
                           GH_SIZE_THROUGH(gh_pool_stats, resume_ns),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_pool_count(pool, &ours);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
