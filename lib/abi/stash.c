/*
 * stash.c - the calls of graphhooks/stash.h: checks what the host hands over,
 * reads the options, then lets lib/stash work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/stash.h>

#include "abi/all_ranks.h"

#include "base/error.h"
#include "base/size.h"
#include "config/env.h"
#include "device/device.h"
#include "stash/stash.h"

#include <stdlib.h>

#define PAGE_UNIT 256u

static gh_status check_desc(const gh_stash_desc *desc, gh_error *err)
{
    if ((desc->flags & ~(uint32_t)GH_STASH_SUSPENDS) != 0 ||
        desc->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_desc.flags is 0x%x, and reserved %u: set "
                       "GH_STASH_SUSPENDS or nothing, and zero the other",
                       desc->flags, desc->reserved);
    }
    if (desc->page_bytes % PAGE_UNIT != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_desc.page_bytes is %llu: give a multiple of "
                       "%u, or 0",
                       (unsigned long long)desc->page_bytes, PAGE_UNIT);
    }
    if (desc->spill_bytes / PAGE_UNIT > UINT32_MAX / 2) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_desc.spill_bytes is %llu: give at most %llu",
                       (unsigned long long)desc->spill_bytes,
                       (unsigned long long)PAGE_UNIT * (UINT32_MAX / 2));
    }
    return gh_check_all_ranks("gh_stash_desc", desc->rank,
                              desc->n_ranks > 0 ? desc->n_ranks : 1,
                              desc->comm != NULL || desc->gather != NULL, err);
}

static gh_status take_desc(const gh_stash_desc *given, gh_stash_desc *desc,
                           gh_error *err)
{
    gh_status status;

    if (given == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_stash_create: desc is NULL");
    }
    status = gh_check_size("gh_stash_desc", given,
                           GH_SIZE_THROUGH(gh_stash_desc, spill_bytes),
                           sizeof(*desc), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, desc, sizeof(*desc));
    return check_desc(desc, err);
}

static gh_status read_options(const gh_stash_desc *desc, struct gh_env *env,
                              gh_error *err)
{
    const struct gh_env_offer offers[] = {
        { GH_ENV_DRIVER, "gh_stash_desc.driver", desc->driver },
        { GH_ENV_NCCL, "gh_stash_desc.nccl", desc->nccl },
    };

    return gh_env_load_with(desc->environment, offers,
                            sizeof(offers) / sizeof(offers[0]), env, err);
}

static gh_status create(const struct gh_env *env, gh_stash_desc *desc,
                        gh_stash **stash_p, gh_error *err)
{
    const struct gh_stash_options options = {
        .timeout_s = env->timeout, .log = { env->log, gh_log_stderr, NULL }
    };
    struct gh_device_before before;
    struct gh_device *dev;
    gh_status status =
        gh_device_open(env->driver, desc->context, desc->device, &dev, err);

    if (status != GH_OK) {
        return status;
    }
    desc->nccl = env->nccl;
    before = gh_device_enter(dev);
    status = gh_stash_open(dev, desc, &options, stash_p, err);
    gh_device_leave(dev, before);
    if (status != GH_OK) {
        gh_device_close(dev);
    }
    return status;
}

gh_status gh_stash_create(const gh_stash_desc *given, gh_stash **stash_p,
                          gh_error *err)
{
    gh_stash_desc desc;
    struct gh_env *env;
    gh_status status;

    if (stash_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_stash_create: stash_p is NULL");
    }
    status = take_desc(given, &desc, err);
    if (status != GH_OK) {
        return status;
    }
    env = malloc(sizeof(*env));
    if (env == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the options");
    }
    status = read_options(&desc, env, err);
    if (status == GH_OK) {
        status = create(env, &desc, stash_p, err);
    }
    free(env);
    return status;
}

void gh_stash_destroy(gh_stash *stash)
{
    if (stash == NULL) {
        return;
    }
    if (!gh_stash_is_free(stash) && !gh_stash_is_suspended(stash)) {
        gh_log_line(gh_stash_log(stash), GH_LOG_WARN,
                    "gh_stash_destroy: called from a function of the host's, "
                    "so the stash stays: destroy it where the library has "
                    "returned");
        return;
    }
    gh_stash_close(stash);
}

/* Neither NULL nor in the middle of a gather. */
static gh_status check(const gh_stash *stash, const char *call, gh_error *err)
{
    if (stash == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "%s: stash is NULL", call);
    }
    if (gh_stash_is_suspended(stash)) {
        return gh_fail(err, GH_ERR_STATE,
                       "%s: the stash is suspended: call gh_stash_resume first",
                       call);
    }
    return gh_check_outside(gh_stash_is_free(stash), call, err);
}

gh_status gh_stash_add(gh_stash *stash, uint32_t max_rows, uint32_t *entry_p,
                       gh_error *err)
{
    struct gh_device_before before;
    gh_status status = check(stash, "gh_stash_add", err);

    if (status != GH_OK) {
        return status;
    }
    if (entry_p == NULL || max_rows == 0 || max_rows > INT32_MAX) {
        return gh_fail(err, GH_ERR_INVALID, "gh_stash_add: %s",
                       entry_p == NULL ? "entry_p is NULL"
                                       : "max_rows has to be 1 to 2147483647");
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_make_entry(stash, max_rows, entry_p, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

gh_status gh_stash_reserve(gh_stash *stash, uint64_t bytes, uint32_t percent,
                           gh_error *err)
{
    struct gh_device_before before;
    gh_status status = check(stash, "gh_stash_reserve", err);

    if (status != GH_OK) {
        return status;
    }
    if (bytes == 0 && percent < 100) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_reserve: %u percent of what a step has needed "
                       "is too little: give at least 100, or bytes",
                       percent);
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_make_pages(stash, bytes, percent, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

static gh_status move(gh_stash *stash, const gh_stash_op *given, bool pushes,
                      gh_error *err)
{
    const char *call = pushes ? "gh_stash_push" : "gh_stash_pop";
    const uint32_t known = pushes ? 0 : (uint32_t)GH_STASH_CLEAR;
    struct gh_device_before before;
    gh_stash_op op;
    gh_status status = check(stash, call, err);

    if (status != GH_OK) {
        return status;
    }
    if (given == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "%s: op is NULL", call);
    }
    status =
        gh_check_size("gh_stash_op", given,
                      GH_SIZE_THROUGH(gh_stash_op, stream), sizeof(op), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, &op, sizeof(op));
    if ((op.flags & ~known) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: gh_stash_op.flags is 0x%x: set %s", call, op.flags,
                       pushes ? "none" : "GH_STASH_CLEAR or none");
    }
    if (op.tensors == NULL || op.n_tensors == 0 ||
        op.n_tensors > GH_STASH_TENSORS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: gh_stash_op has %u tensors%s: give 1 to %u", call,
                       op.n_tensors, op.tensors == NULL ? " at NULL" : "",
                       (uint32_t)GH_STASH_TENSORS);
    }
    if (pushes && (uintptr_t)op.count % sizeof(int32_t) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_push: gh_stash_op.count is %p: give the "
                       "address of an int32_t, a multiple of 4, or NULL",
                       op.count);
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_issue(stash, &op, pushes, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

gh_status gh_stash_push(gh_stash *stash, const gh_stash_op *op, gh_error *err)
{
    return move(stash, op, true, err);
}

gh_status gh_stash_pop(gh_stash *stash, const gh_stash_op *op, gh_error *err)
{
    return move(stash, op, false, err);
}

gh_status gh_stash_end_step(gh_stash *stash, void *stream, uint32_t *rerun_p,
                            gh_error *err)
{
    struct gh_device_before before;
    gh_status status = check(stash, "gh_stash_end_step", err);

    if (status != GH_OK) {
        return status;
    }
    if (rerun_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_end_step: rerun_p is NULL");
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_ask(stash, stream, rerun_p, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

gh_status gh_stash_suspend(gh_stash *stash, void *stream, gh_error *err)
{
    struct gh_device_before before;
    gh_status status = check(stash, "gh_stash_suspend", err);

    if (status != GH_OK) {
        return status;
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_give(stash, stream, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

gh_status gh_stash_resume(gh_stash *stash, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (stash == NULL || !gh_stash_is_suspended(stash)) {
        status = check(stash, "gh_stash_resume", err);
        return status != GH_OK
                   ? status
                   : gh_fail(err, GH_ERR_STATE,
                             "gh_stash_resume: the stash is not suspended: "
                             "call gh_stash_suspend first");
    }
    before = gh_device_enter(gh_stash_device(stash));
    status = gh_stash_take(stash, err);
    gh_device_leave(gh_stash_device(stash), before);
    return status;
}

gh_status gh_stash_get_stats(const gh_stash *stash, gh_stash_stats *stats,
                             gh_error *err)
{
    gh_stash_stats ours;
    gh_status status;

    if (stash == NULL || stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_stash_get_stats: %s is NULL",
                       stash == NULL ? "stash" : "stats");
    }
    status = gh_check_size("gh_stash_stats", stats,
                           GH_SIZE_THROUGH(gh_stash_stats, spilled),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_stash_count(stash, &ours);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
