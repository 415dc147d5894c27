/*
 * comm.h - the ranks that share a bank, and how they hear of each other.
 *
 * Each says some words and has those of all: by NCCL, on a communicator that
 * is split from the host's, or by a service of the host's.  Nothing here waits
 * longer for another rank than it was allowed.  lib/capture knows what is
 * said.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_COMM_H
#define GH_COMM_COMM_H

#include <graphhooks/ranks.h>

#include "device/device.h"

struct gh_comm;

/* Most words that a rank says at once. */
#define GH_COMM_WORDS 24u

/* What is waited with: short naps first. */
struct gh_comm_patience {
    uint64_t until_ns; /* of gh_comm_now() */
    uint32_t nap_us;
};
uint64_t gh_comm_now(void);
struct gh_comm_patience gh_comm_patience(uint32_t seconds);
/* Naps, and whether there is time left. */
bool gh_comm_has_time(struct gh_comm_patience *patience);

/*
 * All ranks come here.  `ranks` has more of them than one, and a gather, or a
 * comm and the name of its NCCL.  `of` is what they share, for a sentence;
 * NULL: the bank.
 *
 * GH_ERR_NOT_FOUND: no such NCCL, or not a whole one.  GH_ERR_INVALID: the
 * communicator has other ranks.  GH_ERR_RANKS: they do not come.
 */
gh_status gh_comm_open(struct gh_device *dev, const gh_ranks *ranks,
                       const char *of, uint32_t seconds, struct gh_comm **comm_p,
                       gh_error *err);
/* NULL is allowed.  No graph holds the host's communicator any more. */
void gh_comm_close(struct gh_comm *comm);

uint32_t gh_comm_rank(const struct gh_comm *comm);
uint32_t gh_comm_size(const struct gh_comm *comm);
/* Whether the host has lent one communicator for both. */
bool gh_comm_is_shared(const struct gh_comm *comm, const struct gh_comm *other);

/* What is said next comes after what has been issued on the stream, which
 * nobody captures: operations of several communicators stay in one order. */
gh_status gh_comm_follow(struct gh_comm *comm, void *stream, gh_error *err);

/*
 * `n` words of each rank: those of rank i from i * n on, until the next call.
 * GH_ERR_RANKS when the others do not come, or cannot be heard; the text says
 * why, and names no rank nor pass.
 */
gh_status gh_comm_gather(struct gh_comm *comm, const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *err);

/* Whether NCCL has found something wrong in the meantime: GH_ERR_RANKS.  Never
 * waits. */
gh_status gh_comm_look(struct gh_comm *comm, gh_error *err);

/* Ends what waits for other ranks, here and in the host's communicator.  No
 * graph of the bank is left.  Once; afterwards only gh_comm_close().
 *
 * The host's is left alone unless `hosts`: another bank's abort ends it.
 *
 * First every bank begins, then every one ends: an abort frees memory, which
 * waits for every kernel of the device, also for one that waits for ranks in
 * another communicator. */
void gh_comm_abort_begin(struct gh_comm *comm, bool hosts);
void gh_comm_abort_end(struct gh_comm *comm);

#endif
