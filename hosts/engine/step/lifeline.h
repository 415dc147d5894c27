/*
 * lifeline.h - what ranks that are processes know of each other's lives.
 *
 * Rank 0 has a socket to every other rank, and each of those one to rank 0.  A
 * rank that ends well says so, one that fails says why, and of one that is
 * killed the socket ends without a word.  Rank 0 passes on what it hears.  So
 * nobody waits on the device for a rank that is gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LIFELINE_H
#define ENGINE_LIFELINE_H

#include "step/ranks.h"

struct lifeline {
    int rank, n;
    int sockets[RANKS_MOST]; /* to each rank; -1: none, or it has ended well */
};

void lifeline_init(struct lifeline *line, int rank, int n);
/* Closes what is open; a rank that has not said anything has failed. */
void lifeline_close(struct lifeline *line);

/* Rank 0 gives each other rank `bytes` when all are there, and waits for no
 * longer than `limit_s`.  0, or -1 with a sentence. */
int lifeline_share(struct lifeline *line, void *data, size_t bytes,
                   int limit_s, char *error, size_t error_bytes);

/* Tells the others how this rank has ended; NULL: well.  What is said first
 * counts.  The two are a
 * comm_watch of a struct lifeline. */
void lifeline_tell(void *line, const char *why);
bool lifeline_lost(void *line, char *text, size_t text_bytes);

#endif
