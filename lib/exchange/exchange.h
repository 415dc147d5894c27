/*
 * exchange.h - moves parts of memory from each rank to each other rank.
 *
 * lib/abi is the caller, and has checked the host's arguments.  The context
 * must be current in every call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_EXCHANGE_EXCHANGE_H
#define GH_EXCHANGE_EXCHANGE_H

#include <graphhooks/exchange.h>

#include "base/log.h"
#include "device/device.h"

/* The wanted kind.  AUTO is GH_EXCHANGE_COPY where that is possible, with the
 * kernel for small parts. */
#define GH_EXCHANGE_AUTO 0u

/* What is small where a measurement has no room in the windows. */
#define GH_EXCHANGE_SMALL_BYTES (UINT64_C(4) << 20)

struct gh_exchange_options {
    gh_exchange_kind kind;
    uint64_t small_bytes; /* for AUTO, unless that is measured */
    bool measures;
    uint32_t timeout_s;
    struct gh_log log;
};

/* Opens an exchange; all ranks must call it.  The exchange has the device from
 * then on, if it opens. */
gh_status gh_exchange_open(struct gh_device *dev, const gh_exchange_desc *desc,
                           const struct gh_exchange_options *options,
                           gh_exchange **x_p, gh_error *err);
/* Whether no function of the host's is called for it just now. */
bool gh_exchange_is_free(const gh_exchange *x);
/* Closes it and its device; all ranks must call it.  Errors go to the log. */
void gh_exchange_close(gh_exchange *x);
const struct gh_log *gh_exchange_log(const gh_exchange *x);
struct gh_device *gh_exchange_device(const gh_exchange *x);
void *gh_exchange_memory(const gh_exchange *x);
void gh_exchange_count(const gh_exchange *x, gh_exchange_stats *stats);

gh_status gh_exchange_issue(gh_exchange *x, const gh_exchange_op *op,
                            gh_error *err);
gh_status gh_exchange_issue_release(gh_exchange *x, void *stream,
                                    gh_error *err);
gh_status gh_exchange_await(gh_exchange *x, void *stream, gh_error *err);

bool gh_exchange_is_suspended(const gh_exchange *x);
gh_status gh_exchange_give(gh_exchange *x, void *stream, gh_error *err);
gh_status gh_exchange_take(gh_exchange *x, gh_error *err);

#endif
