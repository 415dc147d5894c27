/*
 * split.h - the library's communicator, split from the host's within a time.
 *
 * NCCL's call has a thread of its own, so that the caller waits for no other
 * rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_SPLIT_H
#define GH_COMM_SPLIT_H

#include "comm/nccl.h"
#include "device/device.h"

struct gh_split;

/* Begins a communicator of the same ranks, which does not block.  Where no
 * thread starts it waits for them, as NCCL's call does. */
gh_status gh_split_begin(struct gh_nccl *nccl, struct gh_device *dev,
                         struct ncclComm *parent, int rank,
                         struct gh_split **split_p, gh_error *err);
/* Whether all ranks have come.  GH_ERR_RANKS: it has failed. */
gh_status gh_split_is_over(const struct gh_split *split, bool *over_p,
                           gh_error *err);
/* Returns the communicator, also one that has failed.  NULL: there is none, or
 * the split is not over and ends by itself: what it still makes is aborted.
 * `split` is NULL or not used after it. */
struct ncclComm *gh_split_end(struct gh_split *split);

#endif
