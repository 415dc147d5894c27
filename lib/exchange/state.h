/*
 * state.h - what the files of lib/exchange share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_EXCHANGE_STATE_H
#define GH_EXCHANGE_STATE_H

#include "base/gate.h"
#include "comm/comm.h"
#include "comm/nccl.h"
#include "exchange/exchange.h"

#include "words/exchange.h"

#include <stdbool.h>

/* Copies to peers use so many streams besides the host's. */
#define GH_EXCHANGE_LANES 7u

/* The flags that ranks give each other: rows of bytes in the memory of the rank
 * that is told, where byte i is written by rank i alone.  A flag is set by a
 * copy, waited for, and cleared again, in this order only.  So a call leaves
 * all flags as it found them, whether it is issued or replayed:
 *
 *     this rank                             each other
 *     its parts of the window are free
 *     `ready` of this one, there: up
 *                                           waits for `ready` of all; down
 *                                           puts its part here
 *                                           `arrived` here: up
 *     waits for `arrived` of all; down
 *
 * No flag is set again before it is cleared.  Another rank sets the next
 * `arrived` only after it has seen the next `ready`, which this rank sets
 * after it has taken `arrived` down.  This rank sets the next `ready` only
 * after it has seen `arrived`, which the other rank sets after it has taken
 * `ready` down.  This holds too where the host lets `ready` be set early
 * (gh_exchange_release_window), as it does so after the call before.
 *
 * A call in turn (GH_EXCHANGE_TURN_1 and _2) has no `ready`: the `arrived` of
 * the call before stands for it.  This rank has set that one after all work
 * that is before that call, and with it, by the host's promise, all work that
 * uses the parts of the window.  Each turn has a row of its own, so that here
 * too no flag is set before it is cleared: another rank sets the next `arrived`
 * of a row only after it has seen the `arrived` of the call before, of another
 * row, which this rank sets after it has taken this row down. */
enum gh_flag {
    GH_FLAG_READY,
    GH_FLAG_ARRIVED,  /* of calls that are not in turn */
    GH_FLAG_ARRIVED_1,
    GH_FLAG_ARRIVED_2,
    GH_FLAGS_CLEARED, /* rows that are cleared */

    /* Up, once that rank has given the exchange up.  A rank that gives up
     * sets the flags it waits for itself.  So what it puts into the window
     * afterwards is not valid, and may overwrite a valid part.  It sets this
     * flag first. */
    GH_FLAG_GONE = GH_FLAGS_CLEARED,
    /* Always up, except for this rank's own byte.  Copies from this row set
     * the other flags. */
    GH_FLAG_ALL_SET,
    GH_FLAGS
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
    int ordinal; /* the number of its device in its process */
    void *window;
    uint64_t window_bytes;
    void *flags;
    void *opened[2]; /* to be closed: its flags and its window */
    uint32_t box;    /* to which descriptors for it are sent; 0: none are */
    uint64_t room; /* addresses reserved for its window; 0: none, as that is
                      not mapped here */
    bool mapped;
};

struct gh_lane {
    void *stream, *done;
};

/* What a kind does in its own way.  A slot that is NULL does nothing. */
struct gh_exchange_ops {
    const char *name;    /* the word of GRAPHHOOKS_EP_EXCHANGE */
    const char *by;      /* what writes a window, in words */
    bool writes_windows; /* ranks write into each other's windows */

    gh_status (*issue)(gh_exchange *x, const gh_exchange_op *op,
                       gh_error *err);
    /* gh_exchange_release_window() */
    gh_status (*release_window)(gh_exchange *x, void *stream, gh_error *err);
    /* Fails if a rank is known to be lost, while a stream is waited for. */
    gh_status (*look)(gh_exchange *x, gh_error *err);
    /* Fails if what has come cannot be trusted, once a stream has ended. */
    gh_status (*check)(gh_exchange *x, gh_error *err);
    /* Lists ranks that have not come, and returns how many. */
    uint32_t (*missed)(gh_exchange *x, char *text, size_t bytes);
    /* The exchange is over: nothing is to wait for other ranks any more. */
    void (*abort)(gh_exchange *x);
    /* Waits for the graphs that hold captured calls, wherever they were
     * launched, and lets them go on when the time is over.  False: they have
     * not ended. */
    bool (*end_graphs)(gh_exchange *x);
    /* gh_exchange_let_go() */
    bool (*release)(gh_exchange *x, void *stream);
};
extern const struct gh_exchange_ops gh_exchange_alone; /* there is one rank */
#define ROW(id, word) extern const struct gh_exchange_ops gh_exchange_##word;
EXCHANGE_KINDS(ROW)
#undef ROW
/* By copies, or by the kernel: their flags are the same, so that ranks need not
 * agree on the kind of a call. */
extern const struct gh_exchange_ops gh_exchange_auto;

struct gh_exchange {
    struct gh_device *dev;
    struct gh_log log;
    uint32_t rank, n, timeout_s;
    gh_exchange_desc desc; /* as the host has given it */
    const struct gh_exchange_ops *ops; /* NULL: not agreed on yet */
    gh_exchange_stats stats;

    struct gh_comm *comm; /* how ranks agree; NULL: there is one rank */
    struct gh_nccl *nccl; /* NULL: there is no communicator */

    void *window;
    bool window_ours;
    uint64_t window_room; /* what is mapped at addresses that are reserved; 0:
                             it is no such memory */
    bool mapped, suspended;
    bool by_files; /* other processes map the window by its descriptor */
    int box;       /* where descriptors of theirs come; -1: nowhere */
    struct gh_peer *peers;

    void *flags; /* GH_FLAGS rows */
    void *blocks_ended; /* behind them: where the kernel counts its blocks */
    void *seen;  /* pinned: a copy of the flags, as last read */
    uint32_t row_bytes;
    uint32_t n_words; /* words of a row that others write */
    /* n_words waits, then n_words writes */
    struct gh_word *words[GH_FLAGS_CLEARED];

    struct gh_lane lanes[GH_EXCHANGE_LANES];
    uint32_t n_lanes;
    void *side;  /* a stream that waits for no other rank */
    void *begun; /* an event: the beginning of a call, on the host's stream */
    void *ended; /* an event: the end of the last call outside of captures */

    uint32_t turn; /* flags of the last call outside of captures */
    bool captures; /* the call at hand is captured */
    bool released; /* the window, outside of captures, since that call */
    bool in_graphs; /* calls or releases are, for which the end waits */
    bool shares;  /* its device with another rank */
    bool writes;  /* work that it has issued has not ended, and never may */
    bool told;    /* the others know that this rank gave up */
    bool exposed; /* ranks may believe that all have agreed */

    struct gh_nccl_part *parts; /* of the current call */
    struct gh_sends *sends;     /* the same, for the kernel */
    bool over;
    gh_error why;
    struct gh_gate gate;
};

/* The last word of each meeting after the creation: a rank that destroys the
 * exchange is not to be taken for one that suspends it. */
enum gh_meeting {
    GH_MEETING_PARTS,
    GH_MEETING_PARTS_LATE, /* what it has issued has not ended */
    GH_MEETING_SUSPENDS,
    GH_MEETING_RESUMES
};

/* window.c: memory for the window, of cuMemAlloc or, if the host is to suspend
 * it and the device can, mapped.  With by_files the other processes get its
 * descriptor; else none that others open by handles is mapped. */
gh_status gh_window_make(gh_exchange *x, bool by_handles, gh_error *err);
void gh_window_free(gh_exchange *x);
/* For the devices of this process that write into it. */
gh_status gh_window_map(gh_exchange *x, gh_error *err);
gh_status gh_window_allow(gh_exchange *x, const struct gh_peer *peer,
                          gh_error *err);
/* This rank's, and those of others that are mapped here. */
gh_status gh_window_unmap(gh_exchange *x, gh_error *err);
/* Opens the box for descriptors if this rank can share its window so, and
 * returns its name; 0: it cannot. */
uint32_t gh_window_offer(gh_exchange *x);
/* Of by_files: takes the descriptors that the other processes have sent, and
 * maps their windows where that is reserved; if `status` is not GH_OK, as a
 * rank has failed, it only takes them, and returns it. */
gh_status gh_window_fetch(gh_exchange *x, gh_status status, gh_error *err);
/* Gives the addresses of a peer's window back. */
void gh_window_leave(gh_exchange *x, struct gh_peer *peer);
/* From now on by handles of CUDA IPC. */
void gh_window_no_files(gh_exchange *x);

/* reach.c: finds out together with all ranks whether all reach each other, and
 * which two do not. */
struct gh_not_reached {
    uint32_t rank, peer;
    bool is;
};
gh_status gh_exchange_reach(gh_exchange *x, gh_status own,
                            struct gh_not_reached *not_p, gh_error *err);
void gh_exchange_leave(gh_exchange *x);

/* agree.c: gathers n words of each rank.  A rank whose own status is not GH_OK
 * makes all ranks fail. */
gh_status gh_exchange_gather(gh_exchange *x, gh_status own,
                             const uint64_t *mine, uint32_t n,
                             const uint64_t **all_p, gh_error *err);

/* Logs why the ranks take another way than they could have. */
void gh_exchange_warn(const gh_exchange *x, const gh_error *why);

/* measure.c: exchanges parts by copies and by the kernel, all ranks together,
 * and sets stats.small_bytes to the same on all.  `ops` must have been agreed
 * on. */
gh_status gh_exchange_measure(gh_exchange *x, gh_error *err);

/* What a call says of its order: a turn, that the window was released, or 0. */
static inline uint32_t gh_exchange_order(const gh_exchange_op *op)
{
    return op->flags & ~(uint32_t)GH_EXCHANGE_ALONE;
}

/* flags.c; `side` must have been made */
gh_status gh_flags_make(gh_exchange *x, gh_error *err);
/* Copies rows to where gh_flags_seen() finds them. */
gh_status gh_flags_read(gh_exchange *x, enum gh_flag first, enum gh_flag end,
                        void *stream, gh_error *err);
const unsigned char *gh_flags_seen(const gh_exchange *x, enum gh_flag flag);
/* This rank's flag in the memory of another rank, and a row of its own. */
void *gh_flag_at(const gh_exchange *x, enum gh_flag flag, uint32_t rank);
const void *gh_flags_row(const gh_exchange *x, enum gh_flag flag);
/* Sets this rank's flag in the memory of another rank. */
gh_status gh_flags_set(gh_exchange *x, enum gh_flag flag, uint32_t rank,
                       void *stream, gh_error *err);
/* The same in all other ranks. */
gh_status gh_flags_set_all(gh_exchange *x, enum gh_flag flag, void *stream,
                           gh_error *err);
/* Whether what goes to all others may go in one call, which a capture does not
 * take. */
bool gh_exchange_has_batches(const gh_exchange *x, const void *stream);
/* Makes the stream wait until all others have set their flag here, and clears
 * the flags. */
gh_status gh_flags_wait(gh_exchange *x, enum gh_flag flag, void *stream,
                        gh_error *err);
/* The flag that says that a part of the call has arrived. */
enum gh_flag gh_flag_of_arrival(const gh_exchange_op *op);
/* Says to all others that this rank's window is free. */
gh_status gh_flags_release_window(gh_exchange *x, void *stream, gh_error *err);
/* The same for a call, and waits until all have said so.  A call in turn does
 * neither, and one whose window was released only waits. */
gh_status gh_flags_say_ready(gh_exchange *x, const gh_exchange_op *op,
                             gh_error *err);
gh_status gh_flags_wait_ready(gh_exchange *x, const gh_exchange_op *op,
                              gh_error *err);
/* Sets, instead of the others, all flags that this rank waits for. */
void gh_flags_set_own(gh_exchange *x);

/* What such kinds have in common. */
#define GH_EXCHANGE_BY_FLAGS                            \
    .writes_windows = true,                             \
    .release_window = gh_flags_release_window,          \
    .check = gh_flags_check, .missed = gh_flags_missed, \
    .end_graphs = gh_flags_end_graphs, .release = gh_flags_release

/* late.c: for kinds whose ranks wait for flags */
gh_status gh_flags_check(gh_exchange *x, gh_error *err);
uint32_t gh_flags_missed(gh_exchange *x, char *text, size_t bytes);
bool gh_flags_release(gh_exchange *x, void *stream);
bool gh_flags_end_graphs(gh_exchange *x);

/* part.c: the part that goes to a rank, and the part that comes from it */
gh_exchange_part gh_exchange_part_of(const gh_exchange *x,
                                     const gh_exchange_op *op, uint32_t rank);
/* The i-th peer, counted from the next rank on, so that the ranks do not all
 * begin with the same peer. */
static inline uint32_t gh_exchange_peer(const gh_exchange *x, uint32_t i)
{
    return (x->rank + i) % x->n;
}
/* Copies the part that stays on this rank */
gh_status gh_exchange_keep(gh_exchange *x, const gh_exchange_op *op,
                           gh_error *err);

/* wait.c: ends the exchange.  No call succeeds after that, and waits in NCCL
 * are aborted. */
void gh_exchange_fail(gh_exchange *x, const gh_error *why, gh_error *err);
/* Ends it as some rank has not come in time. */
void gh_exchange_miss(gh_exchange *x);
/* Lets everything go on that waits on the stream, on the lanes, and where the
 * last call was issued.  False: it has not ended. */
bool gh_exchange_let_go(gh_exchange *x, void *stream);
/* Whether what was issued ended in time.  If not, the exchange is over. */
bool gh_exchange_has_ended(gh_exchange *x);
/* Whether a stream, and the last call outside of captures, have ended.  Both
 * count as ended where the driver cannot say. */
bool gh_exchange_is_idle(gh_exchange *x, void *stream);
bool gh_exchange_last_ended(gh_exchange *x);
gh_status gh_exchange_refuse(const gh_exchange *x, gh_error *err);

#endif
