/*
 * ranks.h - one rank of several that train one model together.
 *
 * Each rank has its own device, or shares one, and its own part of every
 * step's text.  The gradients of all ranks are summed before the optimizer's
 * step, so all have the same weights.  What is printed is about all ranks.
 * Ranks are threads or processes; nothing here depends on which.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_RANKS_H
#define ENGINE_RANKS_H

#include "step/host_barrier.h"

#include "device/exchange.h"
#include "model/model.h"

enum {
    RANKS_MOST = 64,
    RANKS_GROUPS = 16, /* different numbers of ranks that share sequences */
    RANKS_EXCHANGE = 64 /* the most bytes that a rank tells the others at
                           once */
};

/* The ways of messages: to the stage after, and to the stage before. */
enum link {
    LINK_UP,
    LINK_DOWN,
    LINKS
};

struct ranks {
    struct device *dev;
    int rank, n;
    struct comm_watch watch; /* watches the others */
    const char *nccl;        /* where the library finds the same NCCL */
    struct host_barrier
        *barrier; /* for threads; NULL: the others are processes */
    struct comm world;
    struct comm groups[RANKS_GROUPS]; /* with this rank, one for each such
                                         number */
    int n_groups;
    int pp; /* stages of the pipeline; 0: as 1.  Neighbours are of one stage */
    struct comm stage; /* the ranks of this stage; or none: all are */
    struct comm line;  /* a rank of each stage, that train on the same
                          text; or none */
    struct comm ends;         /* the stages with the embedding and the head; or
                                 none */
    struct comm to[LINKS], from[LINKS]; /* messages of each way go to one
                                           stage and come from another */
    struct comm experts;      /* those that divide the experts; or none */
    struct comm same_experts; /* those that have the same; or none */
    struct exchange exchange; /* between the ranks of `experts` */
    CUstream stream; /* for what ranks tell each other between steps */
    void *mine, *all;           /* device */
    float *summed;              /* device: of ranks_sum_line() */
    size_t n_summed;
    void *mine_host, *all_host; /* pinned */
};

/* Opens a struct whose rank, n, watch and barrier are set.  All ranks must call
 * it.  Returns 0, or -1: dev->error.  In both cases ranks_close() frees it. */
int ranks_open(struct ranks *ranks, struct device *dev,
               const struct nccl *nccl, const ncclUniqueId *id);
/* Makes the groups of `sizes` ranks; each size divides the number of ranks.
 * All ranks must call it.  Returns 0, or -1: dev->error. */
int ranks_split(struct ranks *ranks, const int *sizes, int n);
/* Makes the two groups of ranks that divide experts.  Each of `ep` neighbours
 * has another part of the experts, and every ep-th rank has the same part.  All
 * ranks must call it.  Returns 0, or -1: dev->error. */
int ranks_divide(struct ranks *ranks, int ep);
/* Makes the groups of a pipeline of `pp` stages, whose ends are linked too if
 * `round`.  `pp` divides the number of ranks.  All ranks must call it.  Returns
 * 0, or -1: dev->error. */
int ranks_line_up(struct ranks *ranks, int pp, bool round);
/* Makes the group of the stages with the embedding and the head, which is stage
 * `head`.  Returns as ranks_line_up(), after which it is called. */
int ranks_tie(struct ranks *ranks, int head);
/* Sums numbers on the host over all stages; `user` are the ranks.  All ranks
 * must call it.  Returns 0, or -1: dev->error. */
int ranks_sum_line(void *user, float *data, size_t count);
/* Graphs that hold its operations must be destroyed before. */
void ranks_close(struct ranks *ranks);
/* Ends what waits in any communicator, and destroys the communicators. */
void ranks_let_go(struct ranks *ranks);
/* Tells that this rank has failed: ranks that wait for it go on, and fail. */
void ranks_abort(struct ranks *ranks, const char *why);

/* Waits until all ranks have allocated their memory, before the first exchange
 * of a run.  Returns 0, or -1: dev->error. */
int ranks_barrier(struct ranks *ranks);
/* Puts the `bytes` bytes of each rank into all[], one rank after the other.
 * All ranks must call it; it blocks until they have.  Returns 0, or -1:
 * dev->error. */
int ranks_exchange(struct ranks *ranks, const void *mine, size_t bytes,
                   void *all);

/* Sums the gradients of all ranks, in the stream's order.  If experts are
 * divided, the experts' gradients are summed only over the ranks that have
 * them.  NULL: there are no other ranks. */
void ranks_sum(const struct ranks *ranks, const struct model *model,
               CUstream stream);

/* This rank's exchange of tokens with the ranks that divide the experts; NULL:
 * none do. */
static inline struct exchange *ranks_ep(struct ranks *ranks)
{
    return ranks == NULL || ranks->exchange.comm == NULL ? NULL
                                                         : &ranks->exchange;
}

static inline int ranks_pp(const struct ranks *ranks)
{
    return ranks == NULL || ranks->pp == 0 ? 1 : ranks->pp;
}

/* How many ranks train on different text, and which of them this is. */
static inline int ranks_count(const struct ranks *ranks)
{
    return ranks == NULL ? 1 : ranks->n / ranks_pp(ranks);
}

static inline int ranks_number(const struct ranks *ranks)
{
    return ranks == NULL ? 0 : ranks->rank % ranks_count(ranks);
}

static inline int ranks_stage(const struct ranks *ranks)
{
    return ranks == NULL ? 0 : ranks->rank / ranks_count(ranks);
}

#endif
