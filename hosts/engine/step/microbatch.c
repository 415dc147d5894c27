/*
 * microbatch.c - see microbatch.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/microbatch.h"

#include "step/embedding_head.h"
#include "step/passes.h"

static int parts_of_forward(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];
    const int last = trainer->chunk->model.n_parts - 1;
    struct work work;

    if (trainer->host != NULL) {
        return passes_forward(trainer->host, microbatch);
    }
    if (trainer_lease(trainer, microbatch, stream_of(trainer, microbatch)) !=
        0) {
        return -1;
    }
    work = work_of(trainer, microbatch);
    parts_forward(&work, 0, last,
                  row_block(trainer, trainer->chunk->x, microbatch));
    flight->out = set_part_out(flight->set, last);
    return 0;
}

int microbatch_forward(struct trainer *trainer, int microbatch)
{
    if (trainer_embeds_apart(trainer)) {
        embedding_head_before_forward(trainer, microbatch);
    }
    if (parts_of_forward(trainer, microbatch) != 0) {
        return -1;
    }
    if (trainer_heads_apart(trainer)) {
        embedding_head_after_forward(trainer, microbatch);
    }
    return 0;
}

static int parts_of_backward(struct trainer *trainer, int microbatch,
                             const float **dx_p)
{
    const struct work work = work_of(trainer, microbatch);
    const int last = trainer->chunk->model.n_parts - 1;

    if (trainer->host != NULL) {
        return passes_backward(trainer->host, microbatch, dx_p);
    }
    parts_backward(&work, 0, last,
                   trainer->chunk->model.delay_wgrad ? HALF_DGRAD : HALF_BOTH,
                   row_block(trainer, trainer->chunk->x, microbatch),
                   row_block(trainer, trainer->chunk->d_head, microbatch));
    *dx_p = set_part_gradient(work.set, 0);
    return 0;
}

int microbatch_backward(struct trainer *trainer, int microbatch)
{
    const CUstream stream = stream_of(trainer, microbatch);
    struct flight *flight = &trainer->chunk->flights[microbatch];
    const float *dx;

    if (microbatch > 0) {
        trainer_wait_done(trainer, stream, microbatch - 1);
    }
    if (trainer_heads_apart(trainer)) {
        embedding_head_before_backward(trainer, microbatch);
    }
    if (parts_of_backward(trainer, microbatch, &dx) != 0) {
        return -1;
    }
    flight->dx = dx;
    if (trainer_embeds_apart(trainer)) {
        embedding_head_after_backward(trainer, microbatch, dx);
    }

    DEVICE_CALL(trainer->dev, cuEventRecord, trainer->chunk->done[microbatch],
                stream);
    if (flight->pooled != NULL && !trainer->chunk->model.delay_wgrad) {
        pool_return(flight->pooled, microbatch);
    }
    return 0;
}

int microbatch_wgrad(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];
    struct work work = work_of(trainer, microbatch);

    work.queue.stream = stream_of_wgrad(trainer);
    trainer_wait_done(trainer, work.queue.stream, microbatch);
    if (trainer->host != NULL) {
        if (passes_wgrad(trainer->host, microbatch) != 0) {
            return -1;
        }
    } else {
        parts_backward(&work, 0, trainer->chunk->model.n_parts - 1, HALF_WGRAD,
                       row_block(trainer, trainer->chunk->x, microbatch),
                       row_block(trainer, trainer->chunk->d_head, microbatch));
    }
    if (trainer->wgrad != NULL) {
        DEVICE_CALL(trainer->dev, cuEventRecord,
                    trainer->chunk->added[microbatch], work.queue.stream);
    }
    if (flight->pooled != NULL) {
        pool_return(flight->pooled, microbatch);
    }
    return 0;
}
