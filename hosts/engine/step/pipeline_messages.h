/*
 * pipeline_messages.h - tensors between stages of a pipeline.
 *
 * Each way from a stage to another one has a communicator and a stream of its
 * own, so that messages run beside the passes and never wait for those of the
 * other way.  A message is received in the order in which its stage sends, by
 * graphs' slots or by microbatches (landing.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PIPELINE_MESSAGES_H
#define ENGINE_PIPELINE_MESSAGES_H

#include "step/pipeline_schedule.h"
#include "step/trainer.h"

/* What a pass hands to the next part of the model, or its backward to the part
 * before. */
struct message {
    bool backward;
    int chunk, microbatch; /* of the stage that receives it */
};

/* Events of a chunk, one for each microbatch; [1]: of its backward. */
struct chunk_events {
    CUevent *made[2]; /* what is to be sent is computed */
    CUevent *came[2];
    CUevent *sent;      /* the gradient */
    unsigned *asked[2]; /* the last step in which it was asked for */
};

struct messages {
    struct trainer *trainer;
    const struct gh_pipeline *schedule; /* of the step */
    unsigned step;                      /* counted from 1 */
    CUstream to[LINKS], from[LINKS];
    uint32_t next[LINKS]; /* the sender's action to look at next */
    struct chunk_events *events;
};

/* Return 0, or -1: dev->error. */
int messages_open(struct messages *messages, struct trainer *trainer);
void messages_close(struct messages *messages);

void messages_begin_step(struct messages *messages,
                         const struct gh_pipeline *schedule);
/* Lets the passes' stream wait for what an action of this stage works on, which
 * is one of the step's schedule.  Nothing if no stage sends it. */
void messages_receive(struct messages *messages, const struct gh_action *a);
/* Finds the stage that sends what an action of this stage works on, and the
 * event of its arrival once messages_receive() was called.  False: no stage
 * does. */
bool messages_find(const struct messages *messages, const struct gh_action *a,
                   uint32_t *from, CUevent *came);
/* Sends what an action of this stage has made.  Nothing if it is for no stage.
 */
void messages_send(struct messages *messages, const struct gh_action *a);
/* Lets the passes' stream wait until the gradient is sent that a microbatch of
 * the chunk that runs has made. */
void messages_wait_sent(const struct messages *messages, int microbatch);

#endif
