/*
 * failure_pipe.h - tells ranks that are processes how the others end.
 *
 * Rank 0 has a socket to every other rank, and each of these has one to rank
 * 0.  A rank that ends well says so, and one that fails says why.  If a rank
 * is killed, its socket closes without a message.  Rank 0 passes on what it
 * hears.  So nobody waits on the device for a rank that is gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_FAILURE_PIPE_H
#define ENGINE_FAILURE_PIPE_H

#include "step/ranks.h"

struct failure_pipe {
    int rank, n;
    int sockets[RANKS_MOST]; /* to each rank; -1: none, or it has ended well */
};

void failure_pipe_init(struct failure_pipe *line, int rank, int n);
/* Closes the sockets.  A rank that has not sent anything before has failed. */
void failure_pipe_close(struct failure_pipe *line);

/* Rank 0 gives each other rank `bytes` bytes once all are there, and waits at
 * most `limit_s` seconds.  Returns 0, or -1 with a sentence. */
int failure_pipe_share(struct failure_pipe *line, void *data, size_t bytes,
                       int limit_s, char *error, size_t error_bytes);

/* Tells the others how this rank has ended; NULL: well.  Only the first call
 * counts.  The two functions are a comm_watch of a struct failure_pipe. */
void failure_pipe_tell(void *line, const char *why);
bool failure_pipe_lost(void *line, char *text, size_t text_bytes);

#endif
