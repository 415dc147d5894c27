/*
 * ask.h - what a rank asks the other ranks of its bank about a pass.
 *
 * All ranks ask at the same points: when they record a pass, when they end its
 * recording, and when they compare it.  A rank that cannot replay asks too, and
 * gets an answer only if the others cannot replay either.  A replay calls
 * nothing of this.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_RANKS_ASK_H
#define GH_RANKS_ASK_H

#include "ranks/words.h"

/* What a rank answers.  All ranks do what the worst answer says. */
enum gh_rank_answer {
    GH_RANK_GOES_ON,
    GH_RANK_FAILED, /* eager for good */
    GH_RANK_NOT_NOW /* eager this time */
};

struct gh_verdict {
    enum gh_rank_answer answer;
    uint32_t rank; /* the first that has given it */
    gh_reason reason;
};

/* Whether the open pass is in a bank with ranks, and the other ranks make it
 * too. */
static inline bool gh_ask_is_due(const struct gh_capture *c)
{
    return c->open.bank->comm != NULL &&
           (c->open.flags & GH_PASS_LOCAL) == 0;
}

/*
 * Each of these is called where gh_ask_is_due(), and fails with GH_ERR_RANKS
 * alone: the ranks are lost, and no graph is left.
 */

/* Before the capture begins: what is asked next comes after the stream's
 * work. */
gh_status gh_ask_follow(struct gh_capture *c, gh_error *err);
/* Tells the other ranks this rank's answer, and gets the worst of all. */
gh_status gh_ask(struct gh_capture *c, enum gh_rendezvous rendezvous,
                 enum gh_rank_answer answer, gh_reason reason,
                 struct gh_verdict *verdict, gh_error *err);
/* GRAPHHOOKS_CHECK=ranks: the action is decided, and nothing has run.
 * *alike_p: whether it is the same on all ranks. */
gh_status gh_ask_about_pass(struct gh_capture *c, gh_action action,
                            bool *alike_p, gh_error *err);

#endif
