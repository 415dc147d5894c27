/*
 * places.h - where a rank is, as it tells the others of its bank.
 *
 * What ranks say begins with where they are: the same step, pass and slot, or
 * the same pair of chunks.  Microbatches are not compared: they have numbers of
 * each rank's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_PLACES_H
#define GH_CAPTURE_PLACES_H

#include "capture/state.h"

/* Where ranks ask.  Values are compared between ranks of one library. */
enum gh_meeting {
    GH_AT_ENTER = 1,
    GH_AT_EXIT,
    GH_AT_CHECK,
    GH_AT_PASS,
    GH_AT_TIMES, /* of the nodes of an overlap */
    GH_AT_RUN    /* gh_overlap_run() */
};

/* Words. */
enum {
    GH_SAID_HEAD, /* the place, the answer and its reason */
    GH_SAID_STEP, /* that has not ended */
    GH_SAID_WORK, /* of a pass: segment, direction, variant and flags; else what
                     together.c says */
    GH_SAID_SLOT,
    GH_SAID_MORE, /* may differ */
    GH_SAID
};

uint64_t gh_place_head(enum gh_meeting place, uint32_t answer,
                       gh_reason reason);
uint32_t gh_place_answer(const uint64_t *words);
gh_reason gh_place_reason(const uint64_t *words);

/* "in step 7 at layer 3 attn..mlp forward, slot 1", of another rank too: the
 * plans are alike. */
void gh_place_describe(const struct gh_capture *c, const uint64_t *words,
                       char *text, size_t bytes);

/* `n` words of each rank, those of rank i from i * n on. */
gh_status gh_place_bring(struct gh_capture *c, struct gh_bank *bank,
                         const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *err);
/* All have to be where this rank is, or they have parted. */
gh_status gh_place_compare(struct gh_capture *c, const struct gh_bank *bank,
                           const uint64_t *mine, const uint64_t *all,
                           gh_error *err);

#endif
