/*
 * comm.h - ranks that train together: one rank's end of a communicator.
 *
 * NCCL, or softnccl on the software device, through a table that was filled
 * once (driver/nccl.h).  Every call goes on the caller's stream, and a failure
 * sticks to the device as one of the driver's does.  Calls of a communicator
 * come in the same order on all of its ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_COMM_H
#define ENGINE_COMM_H

#include "device/device.h"

#include "driver/nccl.h"

/* How a rank that waits hears of others.  True: one has failed, and text says
 * which. */
typedef bool comm_lost_fn(void *user, char *text, size_t text_bytes);

struct comm_watch {
    int limit_s; /* for a rank that does not come; 0: none */
    comm_lost_fn *lost;
    void (*tell)(void *user, const char *why); /* that this one has failed */
    void *user;
};

struct comm {
    struct device *dev; /* NULL: there is no communicator */
    const struct nccl *nccl;
    ncclComm_t handle;
    bool gone; /* aborted: nothing is called any more */
    int rank, n;
};

/* 0, or -1: dev->error.  All ranks come here; blocks until they have. */
int comm_init(struct comm *comm, struct device *dev, const struct nccl *nccl,
              const ncclUniqueId *id, int rank, int n);
/* Ranks that give the same color, in the order that they have. */
int comm_split(struct comm *comm, const struct comm *parent, int color);
/* Graphs that hold its operations go before it. */
void comm_destroy(struct comm *comm);
enum {
    COMM_MOST = 24 /* that are aborted at once */
};
/* Lets go those who wait for this rank; they are destroyed, too.  NCCL frees
 * memory in an abort, which waits for every kernel of the device, also for one
 * that waits in another communicator: so all are aborted at once. */
void comm_abort(struct comm *const *comms, int n);

/* Counts are elements of a rank: floats, or bytes. */
void comm_sum(const struct comm *comm, float *data, size_t count,
              CUstream stream);
void comm_gather(const struct comm *comm, const float *mine, float *all,
                 size_t count, CUstream stream);
void comm_gather_bytes(const struct comm *comm, const void *mine, void *all,
                       size_t count, CUstream stream);
void comm_scatter(const struct comm *comm, const float *all, float *mine,
                  size_t count, CUstream stream);
/* Messages between a begin and an end go and come together; those of length 0
 * are none. */
void comm_begin(const struct comm *comm);
void comm_send(const struct comm *comm, const float *data, size_t count,
               int to, CUstream stream);
void comm_receive(const struct comm *comm, float *data, size_t count, int from,
                  CUstream stream);
void comm_end(const struct comm *comm);
/* Sends to the next rank, and receives from the one before. */
void comm_pass_on(const struct comm *comm, const float *send, float *recv,
                  size_t count, CUstream stream);

/* Waits for the stream, but not for ranks that have failed or do not come.  0,
 * or -1: dev->error. */
int comm_synchronize(const struct comm *comm, CUstream stream,
                     const struct comm_watch *watch);

#endif
