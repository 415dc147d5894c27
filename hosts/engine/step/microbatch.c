/*
 * microbatch.c - see microbatch.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/microbatch.h"

#include "step/bare.h"
#include "step/embedding_head.h"
#include "step/landing.h"
#include "step/passes.h"

/* Whether the embedding is in a bare graph; else it runs before memory is
 * leased, for which it need not wait. */
static bool embeds_within(const struct trainer *trainer)
{
    return trainer->chunk->model.embeds && trainer->bare != NULL;
}

/* What a pass without the library launches: the parts, with the ends of the
 * model that the chunk has. */
static void issue_forward(struct trainer *trainer, int microbatch)
{
    const struct work work = work_of(trainer, microbatch);

    if (embeds_within(trainer)) {
        embedding_head_before_forward(trainer, microbatch);
    }
    parts_forward(&work, 0, trainer->chunk->model.n_parts - 1,
                  row_block(trainer, trainer->chunk->x, microbatch));
    if (trainer->chunk->model.heads) {
        embedding_head_after_forward(trainer, microbatch);
    }
}

static void issue_backward(struct trainer *trainer, int microbatch)
{
    const struct work work = work_of(trainer, microbatch);

    if (trainer->chunk->model.heads) {
        embedding_head_before_backward(trainer, microbatch);
    }
    parts_backward(&work, 0, trainer->chunk->model.n_parts - 1,
                   trainer->chunk->model.delay_wgrad ? HALF_DGRAD : HALF_BOTH,
                   row_block(trainer, trainer->chunk->x, microbatch),
                   row_block(trainer, trainer->chunk->d_head, microbatch));
    if (trainer->chunk->model.embeds) {
        embedding_head_after_backward(trainer, microbatch,
                                      set_part_gradient(work.set, 0));
    }
}

static void issue_wgrad(struct trainer *trainer, int microbatch)
{
    struct work work = work_of(trainer, microbatch);

    work.queue.stream = stream_of_wgrad(trainer);
    parts_backward(&work, 0, trainer->chunk->model.n_parts - 1, HALF_WGRAD,
                   row_block(trainer, trainer->chunk->x, microbatch),
                   row_block(trainer, trainer->chunk->d_head, microbatch));
}

/* Runs a pass without the library: by its kernels, or by a graph of them. */
static int run(struct trainer *trainer, enum bare_pass pass, int microbatch)
{
    static void (*const issue[BARE_PASSES])(struct trainer *, int) = {
        [BARE_FORWARD] = issue_forward,
        [BARE_BACKWARD] = issue_backward,
        [BARE_WGRAD] = issue_wgrad,
    };

    if (trainer->bare != NULL) {
        return bare_run(trainer->bare, pass, microbatch, issue[pass]);
    }
    issue[pass](trainer, microbatch);
    return 0;
}

static int hosted_forward(struct trainer *trainer, int microbatch)
{
    if (trainer_embeds_apart(trainer)) {
        embedding_head_before_forward(trainer, microbatch);
    }
    landing_before_forward(trainer, microbatch);
    if (passes_forward(trainer->host, microbatch) != 0) {
        return -1;
    }
    landing_after_forward(trainer, microbatch);
    if (trainer_heads_apart(trainer)) {
        embedding_head_after_forward(trainer, microbatch);
    }
    return 0;
}

int microbatch_forward(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];

    if (trainer->host != NULL) {
        return hosted_forward(trainer, microbatch);
    }
    if (trainer->chunk->model.embeds && !embeds_within(trainer)) {
        embedding_head_before_forward(trainer, microbatch);
    }
    if (trainer_lease(trainer, microbatch, stream_of(trainer, microbatch)) !=
        0) {
        return -1;
    }
    flight->out = set_part_out(flight->set, trainer->chunk->model.n_parts - 1);
    return run(trainer, BARE_FORWARD, microbatch);
}

static int hosted_backward(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];

    if (trainer_heads_apart(trainer)) {
        embedding_head_before_backward(trainer, microbatch);
    }
    landing_before_backward(trainer, microbatch);
    if (passes_backward(trainer->host, microbatch, &flight->dx) != 0) {
        return -1;
    }
    if (trainer_embeds_apart(trainer)) {
        embedding_head_after_backward(trainer, microbatch, flight->dx);
    }
    return 0;
}

static int backward(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];

    if (trainer->host != NULL) {
        return hosted_backward(trainer, microbatch);
    }
    flight->dx = set_part_gradient(flight->set, 0);
    return run(trainer, BARE_BACKWARD, microbatch);
}

/* The microbatch needs its set no longer. */
static void end_flight(struct trainer *trainer, int microbatch)
{
    const struct flight *flight = &trainer->chunk->flights[microbatch];

    if (flight->pooled != NULL) {
        pool_return(flight->pooled, microbatch);
    } else {
        landing_end(trainer, microbatch);
    }
}

int microbatch_backward(struct trainer *trainer, int microbatch)
{
    const CUstream stream = stream_of(trainer, microbatch);

    if (microbatch > 0) {
        trainer_wait_done(trainer, stream, microbatch - 1);
    }
    if (backward(trainer, microbatch) != 0) {
        return -1;
    }

    if (trainer->n_streams > 1) {
        DEVICE_CALL(trainer->dev, cuEventRecord,
                    trainer->chunk->done[microbatch], stream);
    }
    if (!trainer->chunk->model.delay_wgrad) {
        end_flight(trainer, microbatch);
    }
    return 0;
}

int microbatch_wgrad(struct trainer *trainer, int microbatch)
{
    const CUstream stream = stream_of_wgrad(trainer);

    trainer_wait_done(trainer, stream, microbatch);
    if ((trainer->host != NULL ? passes_wgrad(trainer->host, microbatch)
                               : run(trainer, BARE_WGRAD, microbatch)) != 0) {
        return -1;
    }
    if (trainer->wgrad != NULL) {
        DEVICE_CALL(trainer->dev, cuEventRecord,
                    trainer->chunk->added[microbatch], stream);
    }
    end_flight(trainer, microbatch);
    return 0;
}
