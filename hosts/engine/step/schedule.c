/*
 * schedule.c - the order of one step.
 *
 * Forward until `in_flight` microbatches are under way, then the oldest one's
 * backward before every further forward.  Where the gradients of weights are
 * delayed they come so many microbatches after their own backward, on a
 * stream of their own where there are several.  The order is the same in
 * every mode; only parts_forward/passes_forward differ.
 *
 * What the engine itself orders across streams: nothing starts before the
 * step's inputs are there; backward passes add to the gradients one after the
 * other; the gradients of weights come after their backward; the pool's sets;
 * the optimizer comes last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/schedule.h"

#include "model/optimizer.h"
#include "model/parts.h"
#include "step/passes.h"

static int *tokens_of(const struct trainer *trainer, int microbatch)
{
    return trainer->tokens +
           (size_t)microbatch * (size_t)trainer_columns(trainer) *
               (size_t)config_rows(&trainer->model.config);
}

static int *targets_of(const struct trainer *trainer, int microbatch)
{
    return tokens_of(trainer, microbatch) + config_rows(&trainer->model.config);
}

/* NULL: in order. */
static int *positions_of(const struct trainer *trainer, int microbatch)
{
    return trainer->options->n_cp == 0
               ? NULL
               : tokens_of(trainer, microbatch) +
                     2 * config_rows(&trainer->model.config);
}

static struct work work_of(const struct trainer *trainer, int microbatch)
{
    return (struct work){
        .queue = { .dev = trainer->dev,
                   .stream = stream_of(trainer, microbatch) },
        .model = model_of(trainer, microbatch),
        .set = trainer->flights[microbatch].set,
        .offsets = trainer->flights[microbatch].offsets,
        .comm = comm_of(trainer, microbatch),
        .ep = ranks_exchange_of(trainer->options->ranks),
        .ring = trainer->options->cp_ring,
        .positions = positions_of(trainer, microbatch),
    };
}

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
    const int rows = config_rows(&model_of(trainer, microbatch)->config);
    const int ranks = ranks_count(trainer->options->ranks);
    struct work work = work_of(trainer, microbatch);

    embed_forward(&work, tokens_of(trainer, microbatch),
                  row_block(trainer, trainer->x, microbatch));
    if (parts_of_forward(trainer, microbatch) != 0) {
        return -1;
    }
    work = work_of(trainer, microbatch);
    head_forward(&work, trainer->flights[microbatch].out,
                 targets_of(trainer, microbatch),
                 1.0f / ((float)count * (float)rows * (float)ranks),
                 trainer->losses + microbatch);
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
    const struct work work = work_of(trainer, microbatch);
    struct flight *flight = &trainer->flights[microbatch];
    const float *dx;

    if (microbatch > 0) {
        trainer_wait_done(trainer, work.queue.stream, microbatch - 1);
    }
    head_backward(&work, flight->out,
                  row_block(trainer, trainer->d_head, microbatch));
    if (parts_of_backward(trainer, microbatch, &dx) != 0) {
        return -1;
    }
    embed_backward(&work, tokens_of(trainer, microbatch), dx);

    DEVICE_CALL(trainer->dev, cuEventRecord, trainer->done[microbatch],
                work.queue.stream);
    if (flight->pooled != NULL && !trainer->model.delay_wgrad) {
        pool_return(flight->pooled, microbatch);
    }
    return 0;
}

/* The half of a microbatch's backward that was left for later. */
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

/* A backward, and the delayed gradients whose turn has come. */
static int backward_and_wgrad(struct trainer *trainer, int microbatch)
{
    const int due = microbatch - trainer->options->delay;

    if (backward(trainer, microbatch) != 0) {
        return -1;
    }
    return trainer->model.delay_wgrad && due >= 0 ? wgrad(trainer, due) : 0;
}

/* Those that no backward of this step was left to follow. */
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

/* On stream 0, after everything that adds to the gradients, of all ranks. */
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

int schedule_step(struct trainer *trainer, int count)
{
    const int in_flight = trainer->options->in_flight;
    int oldest = 0;

    begin(trainer, count);
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
    if (rest_of_wgrad(trainer, count) != 0) {
        return -1;
    }

    optimize(trainer, count);
    if (trainer->host != NULL && host_end_step(trainer->host) != 0) {
        return -1;
    }
    return trainer->dev->code == CUDA_SUCCESS ? 0 : -1;
}
