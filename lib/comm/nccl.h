/*
 * nccl.h - NCCL, as the rest of the library sees it.
 *
 * Nothing but nccl.c includes NCCL's API, as driver/nccl.h has it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_COMM_NCCL_H
#define GH_COMM_NCCL_H

#include <graphhooks/base.h>

#include <stdbool.h>

struct gh_device;
struct gh_job;
struct gh_nccl;
struct ncclComm;

/* "nccl": libnccl.so.2, "soft": the software device's, or a path.
 * GH_ERR_NOT_FOUND says what is missing. */
gh_status gh_nccl_open(const char *name, struct gh_nccl **nccl_p,
                       gh_error *err);
/* For one more user, who closes it too; by any thread. */
struct gh_nccl *gh_nccl_share(struct gh_nccl *nccl);
/* The library itself stays loaded.  NULL is allowed. */
void gh_nccl_close(struct gh_nccl *nccl);

/* GH_ERR_INVALID: it is none of this NCCL, or has other ranks than `who` has
 * said. */
gh_status gh_nccl_check(const struct gh_nccl *nccl, struct ncclComm *comm,
                        const char *who, uint32_t rank, uint32_t size,
                        gh_error *err);

/* Begins a communicator of the same ranks, which does not block.  Waits for
 * them if `comm` blocks; otherwise *lib_comm_p is written later, before
 * gh_nccl_has_split(). */
gh_status gh_nccl_split(const struct gh_nccl *nccl, struct ncclComm *comm,
                        int rank, struct ncclComm **lib_comm_p, gh_error *err);
gh_status gh_nccl_has_split(const struct gh_nccl *nccl, struct ncclComm *parent,
                            bool *done_p, gh_error *err);
/* Whether what was begun of it, or on it, is. */
gh_status gh_nccl_is_over(const struct gh_nccl *nccl, struct ncclComm *comm,
                          bool *over_p, gh_error *err);

/* 64-bit words of each rank to all; goes on by itself. */
gh_status gh_nccl_gather(const struct gh_nccl *nccl, struct ncclComm *comm,
                         const uint64_t *mine, uint64_t *all, uint32_t n,
                         void *stream, gh_error *err);

/* Bytes to and from another rank; nothing where they are 0. */
struct gh_nccl_part {
    const void *to;
    void *from;
    uint64_t to_bytes, from_bytes;
};
/* One for each rank, in a group; that of `rank` itself is not looked at.  Ends
 * when it is issued, `seconds` at most. */
gh_status gh_nccl_exchange(const struct gh_nccl *nccl, struct ncclComm *comm,
                           const struct gh_nccl_part *parts, uint32_t rank,
                           uint32_t n, void *stream, uint32_t seconds,
                           gh_error *err);

/* GH_ERR_RANKS when its ranks can no longer work together; *gone_p, which may
 * be NULL: as it is no communicator. */
gh_status gh_nccl_look(const struct gh_nccl *nccl, struct ncclComm *comm,
                       bool *gone_p, gh_error *err);

/* All ranks do; aborts one whose end does not come in time.  False: it is still
 * ending, and goes on by itself. */
bool gh_nccl_destroy(struct gh_nccl *nccl, struct gh_device *dev,
                     struct ncclComm *comm, uint32_t seconds);
/* Waits without a limit for graphs that hold operations of the communicator,
 * and for all work on the device.  NULL is allowed. */
void gh_nccl_abort(const struct gh_nccl *nccl, struct ncclComm *comm);
/* The same in a thread, for gh_job_end(). */
struct gh_job *gh_nccl_abort_begin(struct gh_nccl *nccl, struct gh_device *dev,
                                   struct ncclComm *comm, uint32_t seconds);

#endif
