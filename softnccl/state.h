/*
 * state.h - communicators: their ranks, and what each rank has issued.
 *
 * Everything is guarded by the software device's lock: an entry point holds
 * it from soft_begin() to soft_end(), and the device holds it when it calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_STATE_H
#define SOFTNCCL_STATE_H

#include "driver/nccl.h"
#include "softcuda/collectives.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFTNCCL_API __attribute__((visibility("default")))
#define SOFTNCCL_VERSION 23007

enum kind {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_TO_ALL,
    SEND,
    RECV,
    N_KINDS
};

/* One operation of one rank, as it was issued. */
struct item {
    enum kind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or the root */
};

/* What its ranks share. */
struct team {
    uint32_t refs; /* of its ranks */
    uint32_t number, destroyed; /* by so many ranks */
    int n;
    struct ncclComm **ranks; /* NULL: not any more */
    ncclResult_t broken;     /* what ails it, for all of its ranks */
};

/* One rank's communicator. */
struct ncclComm {
    uint32_t refs; /* the program's, and those of its calls */
    bool live, finalized, blocking;
    struct team *team; /* NULL until all have come */
    int rank, n, device;
    ncclResult_t async;
    softcuda_seat *seat;
    uint64_t owner; /* the thread that used it last */
    uint64_t n_collectives, n_splits;
    uint64_t *n_sent, *n_received; /* for each peer */
    uint64_t captured;             /* calls that graphs hold */
    const char *names[N_KINDS];    /* in reports of the device; once asked */
    struct ncclComm *next;         /* all there are */
    char error[256];
};

/* The device's table; NULL before soft_begin() has found it. */
extern const softcuda_collective_calls *device;

/* ncclSuccess when it is a communicator that may be used; else what the call
 * answers.  `what` is the call, for the text. */
ncclResult_t comm_check(struct ncclComm *comm, const char *what);
/* The same, and its ranks have all come, and it is well. */
ncclResult_t comm_usable(struct ncclComm *comm, const char *what);

/* NULL when there is no memory. */
struct ncclComm *comm_new(int rank, int n, int device);
struct ncclComm *comm_ref(struct ncclComm *comm);
void comm_drop(struct ncclComm *comm);
/* The program has no use of it any more. */
void comm_leave(struct ncclComm *comm);
/* "all-reduce of communicator 2, rank 1", for the life of the process. */
const char *comm_name(struct ncclComm *comm, enum kind kind);
uint64_t comms_live(void);
/* The i-th that there is, or NULL. */
struct ncclComm *comm_nth(uint64_t i);

struct team *team_new(uint32_t number, int n);
/* Nothing of the team works any more: each rank's asynchronous error. */
void team_break(struct team *team, ncclResult_t result, const char *text);
/* The number of the next communicator. */
uint32_t team_number(void);
void teams_forget(void);

#endif
