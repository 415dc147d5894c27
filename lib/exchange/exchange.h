/*
 * exchange.h - parts of memory from each rank to each, as the rest of the
 * library sees them.
 *
 * lib/abi is the caller; it has checked what the host says.  The context is
 * current in every call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_EXCHANGE_EXCHANGE_H
#define GH_EXCHANGE_EXCHANGE_H

#include <graphhooks/exchange.h>

#include "base/log.h"
#include "device/device.h"

/* What is wanted; AUTO is GH_EXCHANGE_COPY where it can be. */
#define GH_EXCHANGE_AUTO 0u

struct gh_exchange_options {
    gh_exchange_kind kind;
    uint32_t timeout_s;
    struct gh_log log;
};

/* All ranks come here.  The device is the caller's until the end. */
gh_status gh_exchange_open(struct gh_device *dev, const gh_exchange_desc *desc,
                           const struct gh_exchange_options *options,
                           gh_exchange **x_p, gh_error *err);
/* The same; the text of what has gone wrong is in the log. */
void gh_exchange_close(gh_exchange *x);
struct gh_device *gh_exchange_device(const gh_exchange *x);
void *gh_exchange_memory(const gh_exchange *x);
void gh_exchange_count(const gh_exchange *x, gh_exchange_stats *stats);

gh_status gh_exchange_issue(gh_exchange *x, const gh_exchange_op *op,
                            gh_error *err);
gh_status gh_exchange_await(gh_exchange *x, void *stream, gh_error *err);

#endif
