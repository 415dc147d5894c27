/*
 * state.h - what the files of lib/exchange share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_EXCHANGE_STATE_H
#define GH_EXCHANGE_STATE_H

#include "comm/comm.h"
#include "comm/nccl.h"
#include "exchange/exchange.h"

#include <stdbool.h>

/* Copies to peers are spread over so many streams. */
#define GH_EXCHANGE_LANES 8u

/* What two ranks tell each other: of peer i, at flags + i in this rank's
 * memory, which peer i writes.  Each is raised by a copy, waited for, and
 * taken down again, in that order alone, so that a call leaves all as it has
 * found them, whether it is issued or replayed:
 *
 *     this rank                             peer i
 *     its parts of the window are free
 *     i's `ready` of this one: up
 *                                           waits for `ready`; down
 *                                           puts its part here
 *                                           `arrived` here: up
 *     waits for `arrived`; down
 *
 * The peer raises `arrived` of the next call after it has seen the next
 * `ready`, which comes after `arrived` is down; and this rank raises the next
 * `ready` after it has seen `arrived`, which comes after `ready` is down. */
struct gh_flags {
    uint32_t ready;
    uint32_t apart[31]; /* a line of memory for each word */
    uint32_t arrived;
    uint32_t apart_too[31];
};

/* Behind the flags there is a word for each rank, also on a line of its own:
 * up, once that rank has given the exchange up.  It raises its own flags then,
 * so what it puts into the window afterwards is no part, and may overwrite one:
 * the word comes before. */
#define GH_EXCHANGE_APART 32u

/* How a peer's memory is reached. */
enum gh_reach {
    GH_REACH_NOT,
    GH_REACH_SELF,
    GH_REACH_DIRECT, /* a thread of this process */
    GH_REACH_IPC
};

struct gh_peer {
    enum gh_reach reach;
    bool near;   /* on the same device */
    int ordinal; /* of its device, in its process */
    void *window;
    uint64_t window_bytes;
    struct gh_flags *flags;
    void *opened[2]; /* what is to be closed: the flags', the window's */
};

struct gh_lane {
    void *stream, *done;
};

struct gh_exchange {
    struct gh_device *dev;
    struct gh_log log;
    uint32_t rank, n, timeout_s;
    gh_exchange_desc desc; /* as the host has given it */
    gh_exchange_kind kind; /* 0: not agreed on yet */
    gh_exchange_stats stats;

    struct gh_comm *comm; /* by which ranks agree; NULL: alone */
    struct gh_nccl *nccl; /* NULL: there is no communicator */

    void *window;
    bool window_ours;
    struct gh_flags *flags; /* one for each rank, and one more, which holds
                               the 1 that flags are raised by */
    struct gh_peer *peers;
    uint32_t *seen; /* pinned: the flags as they are, when ranks are missed, or
                       who has given up */
    struct gh_lane lanes[GH_EXCHANGE_LANES];
    uint32_t n_lanes;
    void *side;  /* a stream that waits for nobody */
    void *begun; /* an event: where a call stands on the host's stream */
    void *ended; /* what was issued last, but for captures */

    bool told;    /* the others, that this rank gives the exchange up */
    bool exposed; /* ranks may think that all have agreed */

    struct gh_nccl_part *parts; /* of the call at hand */
    bool over;
    gh_error why;
};

/* reach.c: all ranks together; says whether all reach each other, and which
 * two do not. */
struct gh_not_reached {
    uint32_t rank, peer;
    bool is;
};
gh_status gh_exchange_reach(gh_exchange *x, gh_status own,
                            struct gh_not_reached *not_p, gh_error *err);
void gh_exchange_leave(gh_exchange *x);

/* agree.c: n words of each rank; a rank whose own status is not GH_OK makes
 * all fail. */
gh_status gh_exchange_gather(gh_exchange *x, gh_status own,
                             const uint64_t *mine, uint32_t n,
                             const uint64_t **all_p, gh_error *err);

/* copy.c */
gh_status gh_exchange_by_copy(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err);

/* wait.c: no call succeeds any more, and what waits in NCCL is ended. */
void gh_exchange_fail(gh_exchange *x, const gh_error *why, gh_error *err);
/* What waits on the stream, on the lanes, and where the last call was issued
 * goes on. */
void gh_exchange_let_go(gh_exchange *x, void *stream);
/* What was issued has ended, in time; else the exchange is over. */
bool gh_exchange_has_ended(gh_exchange *x);
gh_status gh_exchange_refuse(const gh_exchange *x, gh_error *err);

/* The part that goes to a rank and comes from it. */
gh_exchange_part gh_exchange_part_of(const gh_exchange *x,
                                     const gh_exchange_op *op, uint32_t rank);

#endif
