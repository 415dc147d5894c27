/*
 * open.h - the pass between enter and exit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_OPEN_H
#define GH_PASS_OPEN_H

#include "bank/bank.h"
#include "base/path.h"
#include "pass/slots.h"

#include <errno.h>

struct gh_capture;

/* What is found out when the pass is entered, so that exit decides nothing. */
struct gh_open_pass {
    uint32_t segment; /* this and the next ones as in gh_pass */
    gh_direction direction;
    uint32_t microbatch, flags, variant;
    void *stream;
    uint64_t number; /* of the pass, from 1 */
    bool active;
    bool timed;   /* stands for timed_every passes in gh_stats.hook_ns */
    bool ranged;  /* its range of NVTX is open */
    bool counted; /* it is part of its microbatch's forwards and backwards */
    uint8_t action;
    uint8_t reason;
    uint32_t chunk, slot;
    struct gh_bank *bank;
    struct gh_slot *at;     /* the slot, when it holds one */
    bool asked;             /* `capturing` is what the driver has said */
    enum gh_capturing capturing;
    void *capture_stream;   /* RECORD: where the capture is */
    bool routed;            /* RECORD: record_begin was called */
    bool refused;           /* RECORD: what it offloads cannot be recorded */
    bool not_now;           /* what it offloads is elsewhere, or has no room:
                               its graph is sound, and not for this time */
    bool repeated;          /* launched, and an eager pass does the same again:
                               what is offloaded is that pass's to move */
    struct gh_entry *entry; /* NULL when the pass holds no slot */
    struct gh_entry *recorded; /* of the last RECORD, and its bank: they stay
                                  when another pass is entered */
    struct gh_bank *recorded_in;
    uint64_t start_ns;      /* of enter, when timed */
    uintptr_t thread;       /* that has entered it; gh_this_thread() */
    struct gh_slot *ended; /* whose flight has ended: what the host issues until
                              the next pass is entered still belongs to it */
};

/* A number that no other thread has while this one runs. */
static inline uintptr_t gh_this_thread(void)
{
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)&errno; /* each thread has its own */
#endif
}

/* Whether enter leaves nothing of the pass to exit. */
static inline bool gh_open_needs_no_exit(const struct gh_open_pass *open)
{
    return (open->flags & GH_PASS_NO_EXIT) != 0 &&
           open->action == GH_ACTION_REPLAYED;
}

/* Whether the pass is only recorded. */
static inline bool gh_open_prepares(const struct gh_open_pass *open)
{
    return (open->flags & GH_PASS_PREPARE) != 0;
}

/* Whether the microbatch holds a slot with the offsets of another
 * microbatch. */
static inline bool gh_open_lacks_sequences(const struct gh_open_pass *open)
{
    return open->slot != GH_SLOT_NONE && open->at->eager == GH_REASON_PACKED &&
           !gh_slot_is_packed(open->at);
}

/* Notes which pass it is.  Nothing is open yet. */
static inline void gh_open_name(struct gh_open_pass *open, const gh_pass *pass)
{
    open->segment = pass->segment;
    open->direction = pass->direction;
    open->microbatch = pass->microbatch;
    open->flags = pass->flags;
    open->variant = pass->variant;
    open->stream = pass->stream;
}

/* Whether exit was given the same pass as enter. */
static inline bool gh_open_is(const struct gh_open_pass *open,
                              const gh_pass *pass)
{
    return open->active && open->segment == pass->segment &&
           open->direction == pass->direction &&
           open->microbatch == pass->microbatch &&
           open->flags == pass->flags && open->variant == pass->variant &&
           open->stream == pass->stream;
}

/* Gives the slot of a pass back that did not run. */
GH_COLD void gh_open_give_slot_up(struct gh_capture *c);

/* Begins the timing of a pass.  With a trace or ranges of NVTX every pass is
 * timed, else one in timed_every. */
GH_COLD void gh_open_begin_timing(struct gh_capture *c, const gh_pass *pass);
/* Ends the range of NVTX, if it is open. */
GH_COLD void gh_open_end_range(struct gh_capture *c);
/* Adds the time of enter, and of exit, which began at `start_ns`. */
GH_COLD void gh_open_end_timing(struct gh_capture *c, uint64_t start_ns);
GH_COLD void gh_open_trace(struct gh_capture *c, gh_status status);

#endif
