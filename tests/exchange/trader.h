/*
 * trader.h - the smallest host that exchanges: bytes that say who has sent
 * them, to whom, and when.
 *
 * A round fills `send`, exchanges, and takes the window away, all on one
 * stream and without a wait of the host's: whoever overwrites something too
 * soon is seen, by the race detector and by the bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef EXCHANGE_TRADER_H
#define EXCHANGE_TRADER_H

#include <graphhooks.h>

#include "tests/nccl/ranks.h"

enum trader_shape {
    SHAPE_UNEVEN,
    SHAPE_FULL,      /* uneven, and no part is empty */
    SHAPE_ALL_TO_ONE,
    SHAPE_NONE,
    SHAPE_CAPACITY,  /* padded: the same from each to each */
    SHAPE_LATER,     /* uneven, further on in the window */
    N_SHAPES
};

#define TRADER_ROUNDS 48

struct trader_options {
    const char *kind; /* NULL: auto */
    uint32_t flags;
    bool by_host;     /* words are brought by the host, not by NCCL */
    bool no_comm;
    bool all_first;   /* each rank says that it is rank 0 */
    bool own_window;  /* of the host's */
    uint32_t unit;    /* bytes; 0: 96 */
    bool aborts;      /* communicators, by itself */
    bool no_memory;   /* of the host's: no rounds */
    bool in_turn;     /* all rounds but each fifth one are in turn */
    bool releases;    /* all rounds are released before, on another stream */
    bool one_half;    /* and all of them write the same part of the window */
    bool takes_late;  /* or what has come is read after the next call */
    bool alone;       /* calls say that nothing runs beside them */
    const char *small; /* gh_exchange_desc.small */
    const char *const *environment; /* NULL: waits 20 s for ranks */
};

struct trader {
    struct rank *r;
    struct trader_options options;
    gh_exchange *x;
    char *window, *theirs; /* the window; the one that the host has made */
    uint64_t unit, most, window_bytes;
    CUdeviceptr send;
    char *out, *in; /* pinned: of each round what is sent, and what has come */
    uint32_t rounds;
    enum trader_shape shapes[TRADER_ROUNDS];
    uint32_t turns[TRADER_ROUNDS]; /* 0, 1 or 2 */
    uint32_t calls;
    CUstream reader; /* where windows are released */
    CUevent read;
    CUgraphExec graphs[N_SHAPES][3];
    uint32_t aborted; /* times that the host was to abort */
    uint32_t obeyed;  /* calls that its functions made and that were taken */
    uint32_t asked;   /* times that they made them */
    gh_error err;
};

/* False, and said, where it does not open. */
bool trader_open(struct trader *t, struct rank *r,
                 const struct trader_options *options);
/* The same without a word: what was returned. */
gh_status trader_try(struct trader *t, struct rank *r,
                     const struct trader_options *options);
void trader_close(struct trader *t);

/* One round is issued; of a shape that was recorded, its graph if `replayed`.
 */
gh_status trader_round(struct trader *t, enum trader_shape shape,
                       bool replayed);
/* The exchange of a shape, captured; of each turn, if the rounds have turns. */
gh_status trader_record(struct trader *t, enum trader_shape shape);
/* The same in a capture that the host has broken: what the call returned. */
gh_status trader_record_broken(struct trader *t, enum trader_shape shape);
gh_status trader_wait(struct trader *t);
/* Waits, and compares all rounds since the last time; how many are wrong, or
 * UINT32_MAX where the wait fails. */
uint32_t trader_wrong(struct trader *t);
bool trader_is_exact(struct trader *t);
/* The same where the exchange is gone and its stream has ended. */
uint32_t trader_wrong_after(struct trader *t);

gh_exchange_stats trader_stats(struct trader *t);
/* Bytes that rank i sends to rank j. */
uint64_t trader_bytes(const struct trader *t, enum trader_shape shape, int i,
                      int j);

#endif
