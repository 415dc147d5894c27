/*
 * landing.h - where graphs of a stage find what they work on.
 *
 * A graph reads fixed addresses, so each slot has places for what belongs to
 * its microbatch: the input of the chunk's first part, the gradient for the
 * last one, tokens for the embedding and the head.  Messages are received
 * there, and tokens copied there beside the passes, so that nothing is copied
 * between two launches.
 *
 * A forward keeps its input in another place, for the backward.  The first one
 * is then free for the next microbatch of the slot, whose message may come
 * while this one's backward runs.
 *
 * A message may come before its microbatch has a slot, and is received where
 * that slot has it: the library takes the lowest slot that is free.  If another
 * one is free by the time of the forward, the message is copied.  Without a
 * slot, and in modes without graphs, places are of the microbatch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LANDING_H
#define ENGINE_LANDING_H

#include "step/trainer.h"

/* Finds how many slots of each chunk get places: as many as the schedule needs,
 * a session has, and GRAPHHOOKS_MEMORY_LIMIT has room for.  The others have the
 * library's copies, as far as the limit allows.  What is left of it for the
 * library is the trainer's limit.  Before the session is opened. */
void landing_fit(struct trainer *trainer);

/* Makes the places of all chunks.  Returns 0, or -1: dev->error.  In both cases
 * landing_close() frees them. */
int landing_open(struct trainer *trainer);
void landing_close(struct trainer *trainer);

/* What the places of a slot take, and those of all slots of all chunks. */
size_t landing_slot_bytes(const struct trainer *trainer, int chunk);
size_t landing_bytes(const struct trainer *trainer);

void landing_begin_step(struct trainer *trainer);

/* Where a microbatch of a chunk receives a message, on a stream, which then
 * waits for what reads that place. */
float *landing_take(struct trainer *trainer, struct chunk *chunk, bool backward,
                    int microbatch, CUstream stream);

/* Around a forward through the library: brings what it reads to the places of
 * the slot that it will have, if it is not there; notes that it was read. */
void landing_before_forward(struct trainer *trainer, int microbatch);
void landing_after_forward(struct trainer *trainer, int microbatch);
/* The event behind the forward that a microbatch of the chunk that runs has
 * just had; NULL: there is none. */
CUevent landing_behind_forward(const struct trainer *trainer, int microbatch);
/* Before a backward: brings the gradient to the place of its slot. */
void landing_before_backward(struct trainer *trainer, int microbatch);
/* After the last pass of a microbatch: its slot is free. */
void landing_end(struct trainer *trainer, int microbatch);

/* Keeps the input of the chunk's first part where later passes read it, and
 * returns that place. */
const float *landing_keep(const struct trainer *trainer, int microbatch,
                          const float *x, CUstream stream);

/* The same of tokens, if later passes read them. */
void landing_keep_tokens(const struct trainer *trainer, int microbatch,
                         const int *tokens, CUstream stream);

/* What the chunk's first part reads forward; *stays_p: it is the slot's place,
 * so that it is the same in each pass. */
const float *landing_input(const struct trainer *trainer, int microbatch,
                           bool *stays_p);
/* What later passes of the microbatch read in its place. */
const float *landing_kept(const struct trainer *trainer, int microbatch,
                          bool *stays_p);
/* What the embedding and the head read forward, and the embedding later. */
const int *landing_tokens(const struct trainer *trainer, int microbatch,
                          bool *stays_p);
const int *landing_kept_tokens(const struct trainer *trainer, int microbatch,
                               bool *stays_p);
/* What the backward of the chunk's last part reads. */
const float *landing_gradient(const struct trainer *trainer, int microbatch,
                              bool *stays_p);

#endif
