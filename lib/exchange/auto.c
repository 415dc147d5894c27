/*
 * auto.c - an exchange by copies, or by the kernel where it is the faster one.
 *
 * The kernel takes multiprocessors from compute beside it, and is no faster for
 * large parts.  So it moves parts that are small, and only in calls of which the
 * host says that nothing runs beside them.  Where ranks share a device it would
 * wait there for one that cannot run meanwhile.  A rank decides by the parts that it
 * sends.  Others may decide differently: both kinds set and wait for the same
 * flags.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/state.h"

static bool all_are_small(const gh_exchange *x, const gh_exchange_op *op)
{
    bool small = true;

    for (uint32_t i = 0; i < x->n; i++) {
        small &= i == x->rank || gh_exchange_part_of(x, op, i).send_bytes <=
                                     x->stats.small_bytes;
    }
    return small;
}

static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    const bool by_kernel = (op->flags & GH_EXCHANGE_ALONE) != 0 &&
                           !x->shares && x->stats.small_bytes != 0 &&
                           x->n <= GH_SENDS_A_LAUNCH && all_are_small(x, op);

    return by_kernel ? gh_exchange_kernel.issue(x, op, err)
                     : gh_exchange_copy.issue(x, op, err);
}

const struct gh_exchange_ops gh_exchange_auto = {
    .name = "auto",
    .by = "copy engine or a kernel",
    .issue = issue,
    GH_EXCHANGE_BY_FLAGS,
};
