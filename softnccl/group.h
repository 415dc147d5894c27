/*
 * group.h - the calls of a thread since ncclGroupStart().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_GROUP_H
#define SOFTNCCL_GROUP_H

#include "softnccl/gather.h"
#include "softnccl/state.h"

/* Both take the lock themselves where there is something to do. */
void group_start(void);
ncclResult_t group_end(void);

/* With the lock held, between the two; each call is a group of its own too.
 * An error makes the outermost end give everything up. */
ncclResult_t group_add(struct ncclComm *comm, CUstream stream,
                       const struct item *item);
ncclResult_t group_add_job(const struct job *job);
ncclResult_t group_error(ncclResult_t result);

#endif
