/*
 * comm.h - an all-gather of a few words between the ranks of a bank.
 *
 * It uses NCCL, on a communicator that is split from the host's, or a service
 * of the host's.  Nothing here waits longer for another rank than the given
 * time.  lib/capture and lib/exchange know what the words mean.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_COMM_H
#define GH_COMM_COMM_H

#include <graphhooks/ranks.h>

#include "device/device.h"

struct gh_comm;
struct gh_gate;
struct gh_thread_barrier;
struct gh_log;

/* The most words of a rank in one gather. */
#define GH_COMM_WORDS 24u

/*
 * Called by all ranks.  `ranks` has more than one, and either a gather or a
 * comm with the name of its NCCL.  `of` names in messages what they share;
 * NULL: the bank.  The host's functions pass the gate.
 *
 * GH_ERR_NOT_FOUND: NCCL is not found, or lacks a function.  GH_ERR_INVALID:
 * the communicator has other ranks.  GH_ERR_RANKS: the others do not come in
 * time.  The log is kept: it is told what has to be left behind.
 */
gh_status gh_comm_open(struct gh_device *dev, const gh_ranks *ranks,
                       const char *of, uint32_t seconds, struct gh_gate *gate,
                       const struct gh_log *log, struct gh_comm **comm_p,
                       gh_error *err);
/* Where the ranks of a process part: none goes on before all have freed what
 * they had together. */
struct gh_comm_parting {
    struct gh_thread_barrier *barrier; /* NULL: nobody is waited for */
    uint32_t rank;
    uint64_t number;
    uint32_t seconds;
};
/* NULL is allowed.  No graph holds operations of the host's communicator.  With
 * a `parting`, which is empty before, gh_comm_part() has to follow. */
void gh_comm_close(struct gh_comm *comm, struct gh_comm_parting *parting);
/* Called on all ranks, when the rest is freed too.  Waits no longer than a
 * gather. */
void gh_comm_part(const struct gh_comm_parting *parting);

uint32_t gh_comm_rank(const struct gh_comm *comm);
uint32_t gh_comm_size(const struct gh_comm *comm);
/* Fails unless each of `n` ranks has said its own number: every `stride` words of
 * `all` is one, of the next rank.  `field` is where the host has it. */
gh_status gh_comm_check_numbers(uint32_t n, const uint64_t *all,
                                uint32_t stride, const char *field,
                                gh_error *err);
/* Whether other ranks are threads of this process; known after a gather. */
bool gh_comm_has_threads(const struct gh_comm *comm);
/* Whether the host has lent one communicator for both. */
bool gh_comm_is_shared(const struct gh_comm *comm, const struct gh_comm *other);

/* Orders the next gather after the work on the stream, which is not captured.
 * So operations of several communicators have the same order on all ranks. */
gh_status gh_comm_follow(struct gh_comm *comm, void *stream, gh_error *err);

/*
 * Gathers `n` words of each rank.  Those of rank i are at i * n in *all_p,
 * valid until the next call.  GH_ERR_RANKS when the others do not come or the
 * communicator has failed; the text says why, but names no rank and no pass.
 */
gh_status gh_comm_gather(struct gh_comm *comm, const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *err);

/* GH_ERR_RANKS when NCCL has reported an asynchronous error.  Never waits. */
gh_status gh_comm_look(struct gh_comm *comm, gh_error *err);

/* Abort the library's communicator, and with `hosts` the host's as well;
 * without it, another bank that has the same one aborts it.  No graph of the
 * bank is left.  Called once; after it only gh_comm_close() is allowed.
 *
 * Begin the aborts of all banks before the first end: an abort frees memory,
 * which waits for every kernel on the device, also for one that waits for ranks
 * in another communicator. */
void gh_comm_abort_begin(struct gh_comm *comm, bool hosts);
void gh_comm_abort_end(struct gh_comm *comm);

#endif
