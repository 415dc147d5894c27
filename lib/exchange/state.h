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

/* Copies to peers are spread over so many streams, beside the host's. */
#define GH_EXCHANGE_LANES 7u

/* What ranks tell each other: rows of bytes in the memory of the rank that is
 * told, of which byte i is written by rank i alone.  `ready` and `arrived` are
 * raised by a copy, waited for, and taken down again, in that order alone, so
 * that a call leaves all as it has found them, whether it is issued or
 * replayed:
 *
 *     this rank                             each other
 *     its parts of the window are free
 *     `ready` of this one, there: up
 *                                           waits for `ready` of all; down
 *                                           puts its part here
 *                                           `arrived` here: up
 *     waits for `arrived` of all; down
 *
 * Another raises `arrived` of the next call after it has seen the next
 * `ready`, which comes after `arrived` is down; and this rank raises the next
 * `ready` after it has seen `arrived`, which comes after `ready` is down. */
enum gh_sign {
    GH_SIGN_READY,
    GH_SIGN_ARRIVED,
    GH_SIGNS_TAKEN, /* so many are taken down */

    /* Up, once that rank has given the exchange up.  It raises its own signs
     * then, so what it puts into the window afterwards is no part, and may
     * overwrite one: this comes before. */
    GH_SIGN_GONE = GH_SIGNS_TAKEN,
    /* Always up, but for this rank's own: by which all others are raised. */
    GH_SIGN_ALL_UP,
    GH_SIGNS
};

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
    void *signs;
    void *opened[2]; /* what is to be closed: the signs', the window's */
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
    struct gh_peer *peers;

    void *signs; /* GH_SIGNS rows */
    void *seen;  /* pinned: the signs as they were when they were read */
    uint32_t row_bytes;
    uint32_t n_words; /* of a row, that others write */
    /* so many waits, and then so many writes */
    struct gh_word *words[GH_SIGNS_TAKEN];

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

/* signs.c; `side` is there */
gh_status gh_signs_make(gh_exchange *x, gh_error *err);
/* Copies rows to where gh_signs_seen() finds them. */
gh_status gh_signs_read(gh_exchange *x, enum gh_sign first, enum gh_sign end,
                        void *stream, gh_error *err);
const unsigned char *gh_signs_seen(const gh_exchange *x, enum gh_sign sign);
/* This rank's, in the memory of another. */
gh_status gh_signs_raise(gh_exchange *x, enum gh_sign sign, uint32_t rank,
                         void *stream, gh_error *err);
/* The stream waits until all others have raised theirs here, and takes them
 * down. */
gh_status gh_signs_take(gh_exchange *x, enum gh_sign sign, void *stream,
                        gh_error *err);
/* All that this rank waits for, in the place of the others. */
void gh_signs_raise_own(gh_exchange *x);

/* issue.c: what stays on this rank */
gh_status gh_exchange_keep(gh_exchange *x, const gh_exchange_op *op,
                           gh_error *err);

/* copy.c */
gh_status gh_exchange_by_copy(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err);

/* wait.c: no call succeeds any more, and what waits in NCCL is ended. */
void gh_exchange_fail(gh_exchange *x, const gh_error *why, gh_error *err);
/* What waits on the stream, on the lanes, and where the last call was issued
 * goes on, to its end; false: it does not. */
bool gh_exchange_let_go(gh_exchange *x, void *stream);
/* What was issued has ended, in time; else the exchange is over. */
bool gh_exchange_has_ended(gh_exchange *x);
gh_status gh_exchange_refuse(const gh_exchange *x, gh_error *err);

/* The part that goes to a rank and comes from it. */
gh_exchange_part gh_exchange_part_of(const gh_exchange *x,
                                     const gh_exchange_op *op, uint32_t rank);

#endif
