/*
 * ranks.h - one rank of several that train one model together.
 *
 * Each has its own device, or shares one, and its own part of every step's
 * text.  The gradients of all are summed before the optimizer's step, so all
 * have the same weights; what is printed is of all.  Ranks are threads or
 * processes: nothing here knows which.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_RANKS_H
#define ENGINE_RANKS_H

#include "step/meeting.h"

#include "device/exchange.h"
#include "model/model.h"

enum {
    RANKS_MOST = 64,
    RANKS_GROUPS = 16, /* numbers of ranks that share sequences */
    RANKS_EXCHANGE = 64 /* most bytes that a rank tells the others at once */
};

struct ranks {
    struct device *dev;
    int rank, n;
    struct comm_watch watch; /* of the others */
    const char *nccl;        /* where the library finds the same NCCL */
    struct meeting *meeting; /* of threads; NULL: the others are processes */
    struct comm world;
    struct comm groups[RANKS_GROUPS]; /* this rank's, of each such number */
    int n_groups;
    struct comm experts;      /* those that divide the experts; or none */
    struct comm same_experts; /* those that have the same; or none */
    struct exchange exchange; /* among the former */
    CUstream stream; /* of what ranks tell each other between steps */
    void *mine, *all;           /* device */
    void *mine_host, *all_host; /* pinned */
};

/* Of a struct whose rank, n, watch and meeting are set.  All ranks come here.
 * 0, or -1: dev->error; ranks_close() takes it either way. */
int ranks_open(struct ranks *ranks, struct device *dev,
               const struct nccl *nccl, const ncclUniqueId *id);
/* Makes the groups: of `sizes`, which divide the number of ranks.  All ranks
 * come here.  0, or -1: dev->error. */
int ranks_split(struct ranks *ranks, const int *sizes, int n);
/* Makes the two groups of ranks that divide experts: `ep` neighbours each have
 * another part of them, which every ep-th rank has, too.  All ranks come here.
 * 0, or -1: dev->error. */
int ranks_divide(struct ranks *ranks, int ep);
/* After the graphs that hold its operations. */
void ranks_close(struct ranks *ranks);
/* Ends what waits in any communicator; there is none afterwards. */
void ranks_let_go(struct ranks *ranks);
/* This rank has failed: those who wait for it go on, and fail. */
void ranks_abort(struct ranks *ranks, const char *why);

/* Each rank's `bytes`, one after the other, in all[].  All ranks come here;
 * blocks until they have.  0, or -1: dev->error. */
/* Before the first exchange of a run. */
int ranks_meet(struct ranks *ranks);
int ranks_exchange(struct ranks *ranks, const void *mine, size_t bytes,
                   void *all);

/* Sums the gradients of all ranks, in the stream's order: those of experts,
 * where they are divided, of the ranks that have them.  NULL: there are no
 * others. */
void ranks_sum(const struct ranks *ranks, const struct model *model,
               CUstream stream);

/* This rank's exchange of tokens with those that divide the experts; NULL: none
 * do. */
static inline struct exchange *ranks_ep(struct ranks *ranks)
{
    return ranks == NULL || ranks->exchange.comm == NULL ? NULL
                                                         : &ranks->exchange;
}

static inline int ranks_count(const struct ranks *ranks)
{
    return ranks == NULL ? 1 : ranks->n;
}

static inline int ranks_number(const struct ranks *ranks)
{
    return ranks == NULL ? 0 : ranks->rank;
}

#endif
