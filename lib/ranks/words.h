/*
 * words.h - where a rank is, as it tells the other ranks of its bank.
 *
 * The words of a gather begin with the position: step, pass and slot, or the
 * pair of chunks of a run.  It must be the same on all ranks.  Microbatches are
 * not compared, as each rank may number them in its own way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_RANKS_WORDS_H
#define GH_RANKS_WORDS_H

#include "pass/pass.h"

/* Where ranks ask each other.  All ranks run the same version of the library,
 * so values may change between releases. */
enum gh_rendezvous {
    GH_AT_ENTER = 1,
    GH_AT_EXIT,
    GH_AT_CHECK,
    GH_AT_PASS,
    GH_AT_TIMES, /* of the nodes of an overlap */
    GH_AT_RUN,   /* gh_overlap_run() */
    GH_AT_SUSPEND, /* gh_session_suspend(): before, and after */
    GH_AT_RESUME
};

/* The words of a gather. */
enum {
    GH_WORD_HEAD, /* the position, the answer and its reason */
    GH_WORD_STEP, /* the current step */
    GH_WORD_WORK, /* of a pass: segment, direction, variant and flags; else as
                     in collect.c */
    GH_WORD_SLOT,
    GH_WORD_MORE, /* the only word that may differ */
    GH_WORDS      /* the number of words */
};

uint64_t gh_rank_words_head(enum gh_rendezvous rendezvous, uint32_t answer,
                            gh_reason reason);
uint32_t gh_rank_words_answer(const uint64_t *words);
gh_reason gh_rank_words_reason(const uint64_t *words);

/* "in step 7 at layer 3 attn..mlp forward, slot 1".  Also for the words of
 * another rank, as all have the same plan. */
void gh_rank_words_describe(const struct gh_capture *c, const uint64_t *words,
                            char *text, size_t bytes);

/* Gathers `n` words of each rank; those of rank i are at i * n. */
gh_status gh_rank_words_collect(struct gh_capture *c, struct gh_bank *bank,
                                const uint64_t *mine, uint32_t n,
                                const uint64_t **all_p, gh_error *err);
/* The ranks are lost unless all are at the same position. */
gh_status gh_rank_words_compare(struct gh_capture *c,
                                const struct gh_bank *bank,
                                const uint64_t *mine, const uint64_t *all,
                                gh_error *err);

#endif
