/*
 * gather.h - the creation of communicators, for which ranks wait for each
 * other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_GATHER_H
#define SOFTNCCL_GATHER_H

#include "softnccl/state.h"

struct gather; /* the ranks that make one communicator together */

/* The request of one rank.  In a group the rank waits at the end of it. */

/* What other ranks read after an abort. */
#define GATHER_ABORTED "another rank has aborted the communicator"

struct job {
    struct gather *gather;
    struct ncclComm *comm; /* NULL: a split that leaves it without */
    ncclComm_t *comm_p;
    bool blocking; /* the call waits */
};

void gather_id(ncclUniqueId *id_p);
/* Add a rank's request.  The result says what is wrong with it. */
ncclResult_t gather_init(struct job *job, ncclComm_t *comm_p, int n,
                         const ncclUniqueId *id, int rank, bool blocking);
/* The call of a split waits if the parent blocks; `blocking` is the
 * communicator's own, for what it is asked later. */
ncclResult_t gather_split(struct job *job, struct ncclComm *parent, int color,
                          int key, ncclComm_t *comm_p, bool blocking);
/* Waits until all ranks have come, if the call waits. */
ncclResult_t gather_wait(struct job *job);

/* Whether a rank may still come to one that waits; true also if unknown. */
bool gathers_can_end(void);
void gathers_give_up(bool hopeless, uint64_t now_ms, uint64_t limit_ms);
/* The rank is aborted: the ranks that wait to split with it go on. */
void gathers_fail_of(const struct ncclComm *parent);
/* The same for a communicator to which not all ranks have come. */
void gathers_leave(const struct ncclComm *comm);

#endif
