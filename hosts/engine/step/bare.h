/*
 * bare.h - a microbatch's passes as graphs that the engine itself captures,
 * without the library.
 *
 * What a pass reads and writes lies at addresses of its microbatch and its set,
 * which are the same in every step.  So there is a graph for each microbatch
 * and set of a chunk, which copies nothing, and steps launch them in the order
 * of the other modes.  Messages stay outside.  It is the floor that graphs of
 * passes can reach.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_BARE_H
#define ENGINE_BARE_H

#include "step/trainer.h"

enum bare_pass {
    BARE_FORWARD,
    BARE_BACKWARD,
    BARE_WGRAD,
    BARE_PASSES
};

/* Returns NULL: dev->error.  bare_close() takes NULL. */
struct bare *bare_open(struct trainer *trainer);
void bare_close(struct bare *bare);

/* Launches a pass of the chunk that runs, on its stream.  One that is new is
 * captured first: issue() launches its kernels, and allocates nothing.  Returns
 * 0, or -1: dev->error. */
int bare_run(struct bare *bare, enum bare_pass pass, int microbatch,
             void (*issue)(struct trainer *trainer, int microbatch));

#endif
