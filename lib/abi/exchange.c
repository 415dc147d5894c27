/*
 * exchange.c - the calls of graphhooks/exchange.h: checks what the host hands
 * over, reads the options, then lets lib/exchange work.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/exchange.h>

#include "abi/all_ranks.h"

#include "base/error.h"
#include "base/size.h"
#include "config/env.h"
#include "device/device.h"
#include "exchange/exchange.h"

#include <stdlib.h>

#define KNOWN_FLAGS ((uint32_t)(GH_EXCHANGE_IPC | GH_EXCHANGE_SUSPENDS))

static gh_status check_desc(const gh_exchange_desc *desc, gh_error *err)
{
    if ((desc->flags & ~KNOWN_FLAGS) != 0 || desc->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_desc.flags is 0x%x, and reserved %u: set "
                       "GH_EXCHANGE_* only, and zero the rest",
                       desc->flags, desc->reserved);
    }
    if (desc->window != NULL && desc->window_bytes == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_desc.window is given, and window_bytes is "
                       "0: say how large it is");
    }
    return gh_check_all_ranks("gh_exchange_desc", desc->rank, desc->n_ranks,
                              desc->comm != NULL || desc->gather != NULL, err);
}

static gh_status take_desc(const gh_exchange_desc *given,
                           gh_exchange_desc *desc, gh_error *err)
{
    gh_status status;

    if (given == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_create: desc is NULL");
    }
    status = gh_check_size("gh_exchange_desc", given,
                           GH_SIZE_THROUGH(gh_exchange_desc, environment),
                           sizeof(*desc), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, desc, sizeof(*desc));
    return check_desc(desc, err);
}

static gh_status read_options(const gh_exchange_desc *desc, struct gh_env *env,
                              struct gh_exchange_options *options,
                              gh_error *err)
{
    const struct gh_env_offer offers[] = {
        { GH_ENV_DRIVER, "gh_exchange_desc.driver", desc->driver },
        { GH_ENV_NCCL, "gh_exchange_desc.nccl", desc->nccl },
        { GH_ENV_EP_EXCHANGE, "gh_exchange_desc.kind", desc->kind },
        { GH_ENV_EP_EXCHANGE_SMALL, "gh_exchange_desc.small", desc->small },
    };
    gh_status status =
        gh_env_load_with(desc->environment, offers,
                         sizeof(offers) / sizeof(offers[0]), env, err);

    if (status != GH_OK) {
        return status;
    }
    options->measures = env->ep_exchange_small == GH_ENV_BYTES_WORD;
    options->small_bytes = options->measures ? 0 : env->ep_exchange_small;
    options->kind = env->ep_exchange;
    options->timeout_s = env->timeout;
    options->log = (struct gh_log){ env->log, gh_log_stderr, NULL };
    if (options->kind == GH_EXCHANGE_NCCL && desc->n_ranks > 1 &&
        desc->comm == NULL) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "the exchange is to be by nccl (GRAPHHOOKS_EP_EXCHANGE "
                       "or gh_exchange_desc.kind), and gh_exchange_desc.comm "
                       "is NULL: give a communicator");
    }
    return GH_OK;
}

static gh_status open_on(struct gh_device *dev, const gh_exchange_desc *desc,
                         const struct gh_exchange_options *options,
                         gh_exchange **x_p, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(dev);
    gh_status status = gh_exchange_open(dev, desc, options, x_p, err);

    gh_device_leave(dev, before);
    return status;
}

static gh_status create(const struct gh_env *env, gh_exchange_desc *desc,
                        const struct gh_exchange_options *options,
                        gh_exchange **x_p, gh_error *err)
{
    struct gh_device *dev;
    gh_status status = gh_device_open(env->driver, desc->context, desc->device,
                                      &dev, err);

    if (status != GH_OK) {
        return status;
    }
    desc->nccl = env->nccl;
    status = open_on(dev, desc, options, x_p, err);
    if (status != GH_OK) {
        gh_device_close(dev);
    }
    return status;
}

gh_status gh_exchange_create(const gh_exchange_desc *given, gh_exchange **x_p,
                             gh_error *err)
{
    struct gh_exchange_options options;
    gh_exchange_desc desc;
    struct gh_env *env;
    gh_status status;

    if (x_p == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_create: x_p is NULL");
    }
    status = take_desc(given, &desc, err);
    if (status != GH_OK) {
        return status;
    }
    env = malloc(sizeof(*env));
    if (env == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the options");
    }
    status = read_options(&desc, env, &options, err);
    if (status == GH_OK) {
        status = create(env, &desc, &options, x_p, err);
    }
    free(env);
    return status;
}

void gh_exchange_destroy(gh_exchange *x)
{
    if (x == NULL) {
        return;
    }
    if (!gh_exchange_is_free(x)) {
        gh_log_line(gh_exchange_log(x), GH_LOG_WARN,
                    "gh_exchange_destroy: called from a function of the "
                    "host's, so the exchange stays: destroy it where the "
                    "library has returned");
        return;
    }
    gh_exchange_close(x);
}

void *gh_exchange_window(const gh_exchange *x)
{
    return x != NULL ? gh_exchange_memory(x) : NULL;
}

/* More than fits into any window, instead of a sum that overflows. */
static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void gh_exchange_lay_out(uint32_t n_ranks, uint32_t rank,
                         const uint64_t *bytes, gh_exchange_part *parts)
{
    uint64_t from = 0, here = 0;

    for (uint32_t peer = 0; peer < n_ranks; peer++) {
        gh_exchange_part *part = &parts[peer];

        part->send_offset = from;
        part->send_bytes = bytes[(size_t)rank * n_ranks + peer];
        part->recv_offset = here;
        part->recv_bytes = bytes[(size_t)peer * n_ranks + rank];
        part->peer_offset = 0;
        for (uint32_t before = 0; before < rank; before++) {
            part->peer_offset = sum_of(part->peer_offset,
                                       bytes[(size_t)before * n_ranks + peer]);
        }
        from = sum_of(from, part->send_bytes);
        here = sum_of(here, part->recv_bytes);
    }
}

/* With its memory, and not in a function of the host's. */
static gh_status check_use(const gh_exchange *x, const char *call,
                           gh_error *err)
{
    return gh_exchange_is_suspended(x)
               ? gh_fail(err, GH_ERR_STATE,
                         "%s: the exchange is suspended: call "
                         "gh_exchange_resume first",
                         call)
               : gh_check_outside(gh_exchange_is_free(x), call, err);
}

gh_status gh_exchange_all_to_all(gh_exchange *x, const gh_exchange_op *given,
                                 gh_error *err)
{
    struct gh_device_before before;
    struct gh_device *dev;
    gh_exchange_op op;
    uint32_t order;
    gh_status status;

    if (x == NULL || given == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_all_to_all: %s is NULL",
                       x == NULL ? "x" : "op");
    }
    status = check_use(x, "gh_exchange_all_to_all", err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_check_size("gh_exchange_op", given,
                           GH_SIZE_THROUGH(gh_exchange_op, capacity),
                           sizeof(op), err);
    if (status != GH_OK) {
        return status;
    }
    gh_take_struct(given, &op, sizeof(op));
    order = op.flags & ~(uint32_t)GH_EXCHANGE_ALONE;
    if ((order & (order - 1)) != 0 ||
        (order & ~(GH_EXCHANGE_TURN_1 | GH_EXCHANGE_TURN_2 |
                   GH_EXCHANGE_RELEASED)) != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_op.flags is 0x%x: give one of "
                       "GH_EXCHANGE_TURN_1, GH_EXCHANGE_TURN_2 and "
                       "GH_EXCHANGE_RELEASED, or none, and "
                       "GH_EXCHANGE_ALONE as you like",
                       op.flags);
    }
    dev = gh_exchange_device(x);
    before = gh_device_enter(dev);
    status = gh_exchange_issue(x, &op, err);
    gh_device_leave(dev, before);
    return status;
}

gh_status gh_exchange_release_window(gh_exchange *x, void *stream,
                                     gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (x == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_release_window: x is NULL");
    }
    status = check_use(x, "gh_exchange_release_window", err);
    if (status != GH_OK) {
        return status;
    }
    before = gh_device_enter(gh_exchange_device(x));
    status = gh_exchange_issue_release(x, stream, err);
    gh_device_leave(gh_exchange_device(x), before);
    return status;
}

gh_status gh_exchange_wait(gh_exchange *x, void *stream, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (x == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_wait: x is NULL");
    }
    status = check_use(x, "gh_exchange_wait", err);
    if (status != GH_OK) {
        return status;
    }
    before = gh_device_enter(gh_exchange_device(x));
    status = gh_device_host_captures(gh_exchange_device(x), stream)
                 ? gh_fail(err, GH_ERR_STATE,
                           "gh_exchange_wait: the stream is capturing: wait "
                           "after the capture has ended")
                 : gh_exchange_await(x, stream, err);
    gh_device_leave(gh_exchange_device(x), before);
    return status;
}

gh_status gh_exchange_suspend(gh_exchange *x, void *stream, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (x == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_suspend: x is NULL");
    }
    status = check_use(x, "gh_exchange_suspend", err);
    if (status != GH_OK) {
        return status;
    }
    before = gh_device_enter(gh_exchange_device(x));
    status = gh_exchange_give(x, stream, err);
    gh_device_leave(gh_exchange_device(x), before);
    return status;
}

gh_status gh_exchange_resume(gh_exchange *x, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (x == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_resume: x is NULL");
    }
    status = gh_check_outside(gh_exchange_is_free(x), "gh_exchange_resume",
                              err);
    if (status != GH_OK) {
        return status;
    }
    if (!gh_exchange_is_suspended(x)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_exchange_resume: the exchange is not suspended: "
                       "call gh_exchange_suspend first");
    }
    before = gh_device_enter(gh_exchange_device(x));
    status = gh_exchange_take(x, err);
    gh_device_leave(gh_exchange_device(x), before);
    return status;
}

gh_status gh_exchange_get_stats(const gh_exchange *x, gh_exchange_stats *stats,
                                gh_error *err)
{
    gh_exchange_stats ours;
    gh_status status;

    if (x == NULL || stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "gh_exchange_get_stats: %s is NULL",
                       x == NULL ? "x" : "stats");
    }
    status = gh_check_size("gh_exchange_stats", stats,
                           GH_SIZE_THROUGH(gh_exchange_stats, event_waits),
                           sizeof(ours), err);
    if (status != GH_OK) {
        return status;
    }
    gh_exchange_count(x, &ours);
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
