/*
 * schedule.c - the order of one step.
 *
 * Forwards run until `in_flight` microbatches are under way; then the oldest
 * one's backward comes before every further forward.  Delayed gradients of
 * weights come so many microbatches after their backward, on a stream of their
 * own if there are several streams.  The order is the same in every mode,
 * where only parts_forward/passes_forward differ; but the modes that overlap
 * have an order of their own (overlap.c).
 *
 * The engine itself orders this across streams: nothing starts before the
 * step's inputs are there; backward passes add to the gradients one after the
 * other; gradients of weights come after their backward; the pool's sets
 * change hands; the optimizer comes last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/schedule.h"

#include "model/optimizer.h"
#include "step/embedding_head.h"
#include "step/overlap.h"
#include "step/passes.h"

static int parts_of_forward(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->flights[microbatch];
    const int last = trainer->model.n_parts - 1;
    struct work work;

    if (trainer->host != NULL) {
        return passes_forward(trainer->host, microbatch);
    }
    if (trainer_lease(trainer, microbatch, stream_of(trainer, microbatch)) !=
        0) {
        return -1;
    }
    work = work_of(trainer, microbatch);
    parts_forward(&work, 0, last, row_block(trainer, trainer->x, microbatch));
    flight->out = set_part_out(flight->set, last);
    return 0;
}

static int forward(struct trainer *trainer, int microbatch, int count)
{
    embedding_head_before_forward(trainer, microbatch);
    if (parts_of_forward(trainer, microbatch) != 0) {
        return -1;
    }
    embedding_head_after_forward(trainer, microbatch, count);
    return 0;
}

static int parts_of_backward(struct trainer *trainer, int microbatch,
                             const float **dx_p)
{
    const struct work work = work_of(trainer, microbatch);
    const int last = trainer->model.n_parts - 1;

    if (trainer->host != NULL) {
        return passes_backward(trainer->host, microbatch, dx_p);
    }
    parts_backward(&work, 0, last,
                   trainer->model.delay_wgrad ? HALF_DGRAD : HALF_BOTH,
                   row_block(trainer, trainer->x, microbatch),
                   row_block(trainer, trainer->d_head, microbatch));
    *dx_p = set_part_gradient(work.set, 0);
    return 0;
}

static int backward(struct trainer *trainer, int microbatch)
{
    const CUstream stream = stream_of(trainer, microbatch);
    struct flight *flight = &trainer->flights[microbatch];
    const float *dx;

    if (microbatch > 0) {
        trainer_wait_done(trainer, stream, microbatch - 1);
    }
    embedding_head_before_backward(trainer, microbatch);
    if (parts_of_backward(trainer, microbatch, &dx) != 0) {
        return -1;
    }
    embedding_head_after_backward(trainer, microbatch, dx);

    DEVICE_CALL(trainer->dev, cuEventRecord, trainer->done[microbatch],
                stream);
    if (flight->pooled != NULL && !trainer->model.delay_wgrad) {
        pool_return(flight->pooled, microbatch);
    }
    return 0;
}

/* Runs the half of a microbatch's backward that was left for later. */
static int wgrad(struct trainer *trainer, int microbatch)
{
    struct flight *flight = &trainer->flights[microbatch];
    struct work work = work_of(trainer, microbatch);

    work.queue.stream = stream_of_wgrad(trainer);
    trainer_wait_done(trainer, work.queue.stream, microbatch);
    if (trainer->host != NULL) {
        if (passes_wgrad(trainer->host, microbatch) != 0) {
            return -1;
        }
    } else {
        parts_backward(&work, 0, trainer->model.n_parts - 1, HALF_WGRAD,
                       row_block(trainer, trainer->x, microbatch),
                       row_block(trainer, trainer->d_head, microbatch));
    }
    if (trainer->wgrad != NULL) {
        DEVICE_CALL(trainer->dev, cuEventRecord, trainer->added[microbatch],
                    work.queue.stream);
    }
    if (flight->pooled != NULL) {
        pool_return(flight->pooled, microbatch);
    }
    return 0;
}

/* Runs a backward, and the delayed gradients whose turn has come. */
static int backward_and_wgrad(struct trainer *trainer, int microbatch)
{
    const int due = microbatch - trainer->options->delay;

    if (backward(trainer, microbatch) != 0) {
        return -1;
    }
    return trainer->model.delay_wgrad && due >= 0 ? wgrad(trainer, due) : 0;
}

/* Runs the delayed gradients that are left after the last backward of the
 * step. */
static int rest_of_wgrad(struct trainer *trainer, int count)
{
    const int due = count - trainer->options->delay;

    for (int i = due > 0 ? due : 0; i < count; i++) {
        if (trainer->model.delay_wgrad && wgrad(trainer, i) != 0) {
            return -1;
        }
    }
    return 0;
}

static void begin(struct trainer *trainer, int count)
{
    struct device *dev = trainer->dev;

    pool_begin_step(&trainer->pool);
    for (int i = 0; i < count; i++) {
        trainer->flights[i] = (struct flight){ 0 };
        if (trainer->offsets != NULL) {
            trainer->flights[i].offsets =
                trainer->offsets +
                i * config_offsets(&trainer->model.config);
        }
    }

    DEVICE_CALL(dev, cuMemsetD32Async, device_address(trainer->model.g), 0,
                trainer->model.n, trainer->streams[0]);
    if (trainer->n_streams <= 1) {
        return;
    }
    DEVICE_CALL(dev, cuEventRecord, trainer->begin, trainer->streams[0]);
    for (int i = 1; i < trainer->n_streams && i < count; i++) {
        DEVICE_CALL(dev, cuStreamWaitEvent, trainer->streams[i], trainer->begin,
                    CU_EVENT_WAIT_DEFAULT);
    }
}

/* Runs the optimizer on stream 0, after everything that adds to the gradients,
 * on all ranks. */
static void optimize(const struct trainer *trainer, int count)
{
    const struct options *options = trainer->options;
    const struct queue queue = {
        .dev = trainer->dev,
        .stream = trainer->streams[0],
    };

    trainer_wait_end(trainer, queue.stream, count - 1);
    ranks_sum(options->ranks, &trainer->model, queue.stream);
    optimizer_step(&trainer->model, &queue, options->lr, options->warmup);
}

/* Issues all forwards and backwards, one after the other. */
static int issue_all(struct trainer *trainer, int count)
{
    const int in_flight = trainer->options->in_flight;
    int oldest = 0;

    for (int i = 0; i < count; i++) {
        if (i - oldest == in_flight &&
            backward_and_wgrad(trainer, oldest++) != 0) {
            return -1;
        }
        if (forward(trainer, i, count) != 0) {
            return -1;
        }
    }
    while (oldest < count) {
        if (backward_and_wgrad(trainer, oldest++) != 0) {
            return -1;
        }
    }
    return rest_of_wgrad(trainer, count);
}

int schedule_step(struct trainer *trainer, int count)
{
    begin(trainer, count);
    if ((trainer->overlaps ? overlap_step : issue_all)(trainer, count) != 0) {
        return -1;
    }
    optimize(trainer, count);
    if (trainer->host != NULL && host_end_step(trainer->host) != 0) {
        return -1;
    }
    return trainer->dev->code == CUDA_SUCCESS ? 0 : -1;
}
