/*
 * stasher.h - keeps rows of experts in the library's stash (model/stash.h).
 *
 * In the modes with graphs, and on one stream.  Steps run in one of three ways:
 *
 *     the first one, if the stash is as large as it needs: eagerly; the sets
 *         keep all rows, and the stash counts
 *     others: through the library; the stash keeps the rows
 *     one for which any rank has had too few pages, once more: eagerly; the
 *         sets keep all rows
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_STASHER_H
#define ENGINE_STASHER_H

#include "step/environment.h"
#include "step/library.h"
#include "step/trainer.h"

#include "model/stash.h"

struct stasher {
    struct trainer *trainer; /* NULL: there is no stash */
    struct library library;
    struct environment environment;
    gh_stash *stash;
    struct stash calls;
    void *memory;     /* device: of the rows that all sets share */
    uint32_t *unused; /* entries of sets that were freed */
    uint32_t n_unused, n_entries;
    bool counts; /* the pages are not made yet */
};

/* Makes a stash if the options ask for one and the mode has graphs, and gives
 * it to the trainer's chunks, which have no sets yet.  All ranks must call it.
 * Returns 0, or -1 with one sentence in error. */
int stasher_open(struct stasher *stasher, struct trainer *trainer,
                 enum mode mode, char *error, size_t error_bytes);
/* All ranks must call it, after the graphs with its pushes and all sets were
 * freed. */
void stasher_close(struct stasher *stasher);

/* Asks, after a step's last backward has ended, whether the step has to run
 * again.  All ranks must call it, and get the same answer.  After a step that
 * counts it makes the pages.  Returns 0, or -1: dev->error. */
int stasher_ask(struct stasher *stasher, bool *again_p);
/* The next step runs without the stash, and those after stasher_come_back(),
 * which frees the sets of that step, with it.  All ranks must call these.
 * Returns 0, or -1: dev->error. */
void stasher_stand_aside(struct stasher *stasher);
int stasher_come_back(struct stasher *stasher);

/* With options.suspend: gives the memory of the pages back, or takes it.  No set
 * holds rows.  NULL is allowed.  Returns 0, or -1: dev->error. */
int stasher_suspend(struct stasher *stasher);
int stasher_resume(struct stasher *stasher);

/* struct_size is 0 if there is no stash. */
void stasher_stats(const struct stasher *stasher, gh_stash_stats *stats);

#endif
