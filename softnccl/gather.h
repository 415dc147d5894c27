/*
 * gather.h - ranks come together to make communicators.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_GATHER_H
#define SOFTNCCL_GATHER_H

#include "softnccl/state.h"

/* What a rank has asked for; it waits at the end of the group, if any. */
struct gather;

struct job {
    struct gather *gather;
    struct ncclComm *comm; /* NULL: a split that leaves it without */
    ncclComm_t *comm_p;
    bool blocking;
};

void gather_id(ncclUniqueId *id_p);
/* The rank has come.  Whatever is wrong is the result. */
ncclResult_t gather_init(struct job *job, ncclComm_t *comm_p, int n,
                         const ncclUniqueId *id, int rank, bool blocking);
ncclResult_t gather_split(struct job *job, struct ncclComm *parent, int color,
                          int key, ncclComm_t *comm_p, bool blocking);
/* Waits until all have come, if it is to block. */
ncclResult_t gather_wait(struct job *job);

/* Someone may yet come to one that waits; also true when nobody can say. */
bool gathers_can_end(void);
void gathers_give_up(bool hopeless, uint64_t now_ms, uint64_t limit_ms);
/* The rank is aborted: those who split with it go on. */
void gathers_fail_of(const struct ncclComm *parent);
/* The same of a communicator that not all have come to. */
void gathers_leave(const struct ncclComm *comm);

#endif
