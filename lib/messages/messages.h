/*
 * messages.h - what a person should know, in the log and once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MESSAGES_MESSAGES_H
#define GH_MESSAGES_MESSAGES_H

#include "bank/entry.h"

struct gh_capture;

enum gh_failed {
    GH_FAILED,       /* it is eager from now on */
    GH_FAILED_ONCE,  /* it is recorded once more */
    GH_FAILED_SO_FAR /* it is recorded again in each step */
};

/* "layer 3 attn..mlp forward, slot 1", for the log. */
struct gh_entry_label {
    char text[224];
};

/* Entries that failed for the same reason, which are logged together.  The
 * first is kept as a text, as its bank may be evicted before that. */
struct gh_given_up {
    struct gh_entry_label first;
    enum gh_failed how;
    uint32_t n; /* 0: nothing to log */
    char text[400];
};
#define GH_GIVEN_UP 4 /* reasons that one step is expected to have */

/* What was logged, and what is noted to be logged with more of its kind. */
struct gh_messages {
    uint32_t reasons;            /* bit i: gh_reason i was logged */
    char misfit[200];            /* what GH_REASON_INPUT says */
    char rank[120];              /* what GH_REASON_RANKS says */
    bool looked_for_missing;     /* segments that are never entered */
    bool output_moved;
    uint8_t *nothing_to_compare; /* [direction][segment]; see messages.c */
    struct gh_given_up given_up[GH_GIVEN_UP];
};

gh_status gh_messages_create(uint32_t n_segments,
                             struct gh_messages **messages_p, gh_error *err);
void gh_messages_free(struct gh_messages *messages);

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry);

/* The entry runs eagerly from now on.  It is noted, and logged for all that
 * have the same text together. */
void gh_message_given_up(struct gh_capture *c, const struct gh_entry *entry,
                         const char *text);
/* The same of one that is recorded once more, in a later step. */
void gh_message_spoilt(struct gh_capture *c, const struct gh_entry *entry,
                       const char *text);
/* The host has given up its recordings in so many steps; the same. */
void gh_message_dropped(struct gh_capture *c, const struct gh_entry *entry);
/* GRAPHHOOKS_CHECK has found no outputs in the pass that is open.  It is
 * noted, and logged for all such passes together. */
void gh_message_nothing_to_compare(struct gh_capture *c);
/* GRAPHHOOKS_CHECK has found an output of an eager pass elsewhere than where
 * its graph writes: right for a host that allocates, and for no other. */
void gh_message_output_moved(struct gh_capture *c, const struct gh_entry *entry,
                             uint32_t output);
/* Logs what was noted of many passes. */
void gh_messages_log_noted(struct gh_capture *c);
/* The same at the end of a step; after the first one also which segments were
 * never entered. */
void gh_messages_end_step(struct gh_capture *c);

/* ---- eager.c ----------------------------------------------------------- */

/* Of the pass that is open and has run eagerly, unless that kind of
 * reason was logged before. */
void gh_message_eager(struct gh_capture *c);
/* With GRAPHHOOKS_STRICT: the same as an error, each time.  GH_OK: the pass has
 * a graph, or none is expected of it. */
gh_status gh_message_strictly(struct gh_capture *c, gh_error *err);
/* Of a pass that the entry's graph cannot serve: noted for
 * gh_message_eager(). */
void gh_message_misfit(struct gh_capture *c, const struct gh_entry *entry,
                       const gh_pass *pass);
/* Of a pass whose launch is kept back by what it offloads: noted. */
void gh_message_not_now(struct gh_capture *c);
/* Of a pass with an input beyond its capacity: noted. */
void gh_message_overflow(struct gh_capture *c, const gh_pass *pass);
/* Of a pass that another rank of its bank keeps from its graph: noted. */
void gh_message_rank(struct gh_capture *c, uint32_t rank, gh_reason reason);
/* A host that forgets gh_iteration_end would never get a graph. */
void gh_message_no_step_ends(const struct gh_capture *c);

/* ---- summary.c --------------------------------------------------------- */

/* What is left to log when the session closes. */
void gh_messages_close_summary(struct gh_capture *c, const gh_stats *stats);

#endif
