/*
 * comm.h - one rank's end of a communicator, for ranks that train together.
 *
 * It is NCCL, or softnccl on the software device, called through a table that
 * is filled once (driver/nccl.h).  Every call goes on the caller's stream.  A
 * failure sticks to the device, as a failure of the driver does.  All ranks of
 * a communicator must make its calls in the same order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_COMM_H
#define ENGINE_COMM_H

#include "device/device.h"

#include "driver/nccl.h"

/* Asks about the other ranks while this one waits.  True: one has failed, and
 * text says which. */
typedef bool comm_lost_fn(void *user, char *text, size_t text_bytes);

struct comm_watch {
    int limit_s; /* for a rank that does not come */
    comm_lost_fn *lost;
    void (*tell)(void *user, const char *why); /* tells that this rank failed */
    void *user;
};

struct comm {
    struct device *dev; /* NULL: there is no communicator */
    const struct nccl *nccl;
    ncclComm_t handle;
    bool gone; /* aborted: nothing is called after that */
    int rank, n;
};

/* Returns 0, or -1: dev->error.  All ranks must call it; it blocks until they
 * have. */
int comm_init(struct comm *comm, struct device *dev, const struct nccl *nccl,
              const ncclUniqueId *id, int rank, int n);
enum {
    COMM_NO_COLOR = NCCL_SPLIT_NOCOLOR /* the rank is in none */
};
/* Makes a communicator of the ranks that give the same color, in their
 * order. */
int comm_split(struct comm *comm, const struct comm *parent, int color);
/* Graphs that hold its operations must be destroyed before. */
void comm_destroy(struct comm *comm);
enum {
    COMM_MOST = 32 /* that can be aborted at once */
};
/* Lets the ranks go on that wait for this one, and destroys the communicators.
 * NCCL frees memory in an abort, and that waits for every kernel of the device,
 * even for one that waits in another communicator.  So all must be aborted at
 * once.  It also waits for graphs that hold an operation, which others may be
 * about to launch: after two seconds that is left to the end of the process. */
void comm_abort(struct comm *const *comms, int n);

/* A count is a number of elements of one rank: floats, or bytes. */
void comm_sum(const struct comm *comm, float *data, size_t count,
              CUstream stream);
void comm_gather(const struct comm *comm, const float *mine, float *all,
                 size_t count, CUstream stream);
void comm_gather_bytes(const struct comm *comm, const void *mine, void *all,
                       size_t count, CUstream stream);
void comm_scatter(const struct comm *comm, const float *all, float *mine,
                  size_t count, CUstream stream);
/* Messages between a begin and an end are sent and received together.  Those of
 * length 0 are left out. */
void comm_begin(const struct comm *comm);
void comm_send(const struct comm *comm, const float *data, size_t count,
               int to, CUstream stream);
void comm_receive(const struct comm *comm, float *data, size_t count, int from,
                  CUstream stream);
void comm_end(const struct comm *comm);
/* Sends to the next rank, and receives from the one before. */
void comm_pass_on(const struct comm *comm, const float *send, float *recv,
                  size_t count, CUstream stream);

/* Waits for the stream, but not for ranks that have failed or do not come.
 * Returns 0, or -1: dev->error. */
int comm_synchronize(const struct comm *comm, CUstream stream,
                     const struct comm_watch *watch);
/* Waits for an event in the same way.  `what` begins the sentence of a
 * failure. */
int comm_wait(const struct comm *comm, CUevent event,
              const struct comm_watch *watch, const char *what);

#endif
