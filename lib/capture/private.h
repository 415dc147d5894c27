/*
 * private.h - what the files of lib/capture/ share.
 *
 *     capture.c   a session's passes: life, steps, counters
 *     enter.c     a pass begins: its slot, its decision
 *     exit.c      a pass ends
 *     slots.c     which slot a microbatch holds
 *     borders.c   what passes leave behind for those on the other side
 *     aux.c       tensors that graphs read besides their inputs
 *     entry.c     what an entry holds, and how it loses that
 *     record.c    a pass becomes an entry with a graph
 *     replay.c    an entry is launched
 *     host.c      graphs that a host captures and launches itself
 *     check.c     an entry is run both ways and compared
 *     say.c       what a person should know, in the log
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_PRIVATE_H
#define GH_CAPTURE_PRIVATE_H

#include "capture/capture.h"
#include "bank/bank.h"
#include "capture/slots.h"
#include "device/device.h"
#include "memory/memory.h"
#include "memory/scratch.h"

/* Off the step path: kept out of line, so that the path itself stays short. */
#define GH_COLD __attribute__((noinline, cold))

/* What a pass that ran eagerly has left under a name.  One for each entry,
 * and one for each (segment, direction) without a slot. */
struct gh_left {
    uint64_t ran;  /* the number of the pass, from 1; 0: none */
    uint64_t step; /* this and the next two are read without a slot */
    uint32_t microbatch;
    uint32_t flags;
    uint32_t n, room;
    gh_buffer *outputs;
};

/* Which pass it is: the fields of gh_pass that exit must repeat, as they
 * follow each other there; it is read right out of one, hence may_alias. */
struct gh_pass_key {
    uint32_t segment, direction, microbatch, flags;
} __attribute__((may_alias));

_Static_assert(offsetof(struct gh_pass_key, flags) ==
                   offsetof(gh_pass, flags) - offsetof(gh_pass, segment),
               "a key is a stretch of gh_pass");

static inline const struct gh_pass_key *gh_key_of(const gh_pass *pass)
{
    return (const void *)((const char *)pass + offsetof(gh_pass, segment));
}

/* The pass between enter and exit. */
struct gh_open_pass {
    struct gh_pass_key key;
    uint32_t variant;
    void *stream;
    bool active;
    bool timed;   /* stands for timed_every passes in gh_stats.hook_ns */
    bool counted; /* it is part of its microbatch's forwards and backwards */
    uint8_t action;
    uint8_t reason;
    uint32_t chunk, slot;
    struct gh_slot *at;     /* the slot, when it holds one */
    void *capture_stream;   /* RECORD: where the capture is */
    bool routed;            /* RECORD: record_begin was called */
    struct gh_entry *entry; /* NULL when the pass holds no slot */
    uint64_t start_ns;      /* of enter, when timed */
};

/* Whether enter leaves nothing of the pass to exit. */
static inline bool gh_open_needs_no_exit(const struct gh_open_pass *open)
{
    return (open->key.flags & GH_PASS_NO_EXIT) != 0 &&
           open->action == GH_ACTION_REPLAYED;
}

/* Whether the pass is only recorded. */
static inline bool gh_open_prepares(const struct gh_open_pass *open)
{
    return (open->key.flags & GH_PASS_PREPARE) != 0;
}

/* What the plan and the switch settle for a segment, once. */
struct gh_segment_fate {
    uint32_t chunk;
    uint32_t never; /* why it is never graphed, or GH_REASON_NONE */
};

struct gh_capture {
    const struct gh_plan *plan;
    struct gh_device *dev; /* NULL: disabled, and no driver was found */
    struct gh_capture_options options;
    struct gh_slots *slots;
    struct gh_segment_fate *fates; /* by segment */
    struct gh_bank bank;
    struct gh_left *left;   /* [segment][direction][slot, or none of them] */
    struct gh_bound *bound; /* aux.c */
    uint32_t n_bound;
    struct gh_open_pass open;
    uint32_t paused;
    uint64_t check_turn;
    uint64_t enters, exits; /* enters: the number of the next pass, from 1 */
    uint64_t timed_every, until_timed;

    void *own_stream; /* records what the legacy stream cannot */
    struct gh_streams streams;
    struct gh_memory memory;
    struct gh_scratch scratch; /* of GRAPHHOOKS_CHECK */
    gh_error why;  /* of a call that failed and that no host is told of */
    uint32_t said; /* bit i: gh_reason i was said once */
    bool looked_for_missing;     /* segments that are never entered */
    uint8_t *nothing_to_compare; /* [direction][segment]; see say.c */
    struct gh_given_up given_up[GH_GIVEN_UP];
    uint64_t compared_outputs, compared_bytes; /* by GRAPHHOOKS_CHECK */

    gh_stats stats;
};

uint64_t gh_now_ns(void);

/* "layer 3 attn..mlp forward, slot 1", for the log. */
struct gh_entry_label {
    char text[160];
};
struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry);

/* The entry runs eagerly from now on; frees what it holds.  The end of the
 * step says so. */
void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text);

/* say.c: of the pass that is open and has run eagerly, unless that kind of
 * reason was said before */
void gh_say_eager(struct gh_capture *c);
/* The entry runs eagerly from now on.  It is noted, and said for all that have
 * the same text together. */
void gh_say_given_up(struct gh_capture *c, const struct gh_entry *entry,
                     const char *text);
/* GRAPHHOOKS_CHECK has found no outputs in the pass that is open.  It is
 * noted, and said for all such passes together. */
void gh_say_nothing_to_compare(struct gh_capture *c);
/* What is known of many segments at the end of a step. */
void gh_say_step_ended(struct gh_capture *c);
/* What is left to say when the session closes. */
void gh_say_closed(struct gh_capture *c);
/* A host that forgets gh_iteration_end would never get a graph. */
void gh_say_no_step_ends(const struct gh_capture *c);

/* exit.c: the microbatch moves on, and no pass is open. */
void gh_open_move_on(struct gh_capture *c, const gh_pass *pass);
void gh_open_trace(struct gh_capture *c, gh_status status);

/* Of a pass that did not run. */
void gh_open_give_slot_up(struct gh_capture *c);

/* borders.c */
gh_status gh_borders_create(struct gh_capture *c, gh_error *err);
void gh_borders_destroy(struct gh_capture *c);
/* Whether a pass of the segment has run eagerly. */
bool gh_borders_any(const struct gh_capture *c, uint32_t segment);
/* Of a pass that ran eagerly: its outputs with a name. */
void gh_borders_keep(struct gh_capture *c, const gh_pass *pass);

/* aux.c */
void gh_aux_release_all(struct gh_capture *c);

/* record.c */
bool gh_record_begin(struct gh_capture *c, const gh_pass *pass,
                     struct gh_entry *entry);
gh_status gh_record_end(struct gh_capture *c, const gh_pass *pass,
                        gh_error *err);
void gh_record_drop(struct gh_capture *c);

/* replay.c */
gh_status gh_replay_copy_inputs(struct gh_capture *c, struct gh_entry *entry,
                                void *stream, gh_error *err);

/* host.c: nodes that a host has not let the library count */
#define GH_NODES_UNKNOWN UINT64_MAX

static inline bool gh_host_captures(const struct gh_capture *c)
{
    return c->options.host.capture_begin != NULL;
}

gh_status gh_host_capture_begin(struct gh_capture *c, void *stream,
                                gh_error *err);
/* Always leaves the stream out of capture, whatever it returns. */
gh_status gh_host_capture_end(struct gh_capture *c, void *stream,
                              void **object_p, uint64_t *n_nodes_p,
                              gh_error *err);
gh_status gh_host_launch(struct gh_capture *c, struct gh_entry *entry,
                         void *stream, gh_error *err);

/* check.c */
enum gh_check_begun {
    GH_CHECK_READY,   /* the host runs the parts, exit compares */
    GH_CHECK_STANDS,  /* launched, and not to be compared: a plain replay */
    GH_CHECK_NOT_RUN, /* nothing was launched */
    GH_CHECK_LOST     /* launched, and the state before is gone */
};
/* Whether there is anything to compare. */
bool gh_check_has_results(const struct gh_entry *entry);
enum gh_check_begun gh_check_begin(struct gh_capture *c, struct gh_entry *entry,
                                   const gh_pass *pass, gh_error *err);
void gh_check_end(struct gh_capture *c, struct gh_entry *entry,
                  const gh_pass *pass);

#endif
