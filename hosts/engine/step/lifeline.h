/*
 * lifeline.h - tells ranks that are processes how the others end.
 *
 * Rank 0 has a socket to every other rank, and each of these has one to rank
 * 0.  A rank that ends well says so, and one that fails says why.  If a rank
 * is killed, its socket closes without a message.  Rank 0 passes on what it
 * hears.  So nobody waits on the device for a rank that is gone.
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
/* Closes the sockets.  A rank that has not sent anything before has failed. */
void lifeline_close(struct lifeline *line);

/* Rank 0 gives each other rank `bytes` bytes once all are there, and waits at
 * most `limit_s` seconds.  Returns 0, or -1 with a sentence. */
int lifeline_share(struct lifeline *line, void *data, size_t bytes,
                   int limit_s, char *error, size_t error_bytes);

/* Tells the others how this rank has ended; NULL: well.  Only the first call
 * counts.  The two functions are a comm_watch of a struct lifeline. */
void lifeline_tell(void *line, const char *why);
bool lifeline_lost(void *line, char *text, size_t text_bytes);

#endif
