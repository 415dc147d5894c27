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
#include "step/host.h"
#include "step/microbatch.h"
#include "step/overlap.h"
#include "step/pipeline.h"
#include "step/stasher.h"

/* Runs a backward, and the delayed gradients whose turn has come. */
static int backward_and_wgrad(struct trainer *trainer, int microbatch)
{
    const int due = microbatch - trainer->options->delay;

    if (microbatch_backward(trainer, microbatch) != 0) {
        return -1;
    }
    return trainer->chunk->model.delay_wgrad && due >= 0
               ? microbatch_wgrad(trainer, due)
               : 0;
}

/* Runs the delayed gradients that are left after the last backward of the
 * step. */
static int rest_of_wgrad(struct trainer *trainer, int count)
{
    const int due = count - trainer->options->delay;

    for (int i = due > 0 ? due : 0; i < count; i++) {
        if (trainer->chunk->model.delay_wgrad &&
            microbatch_wgrad(trainer, i) != 0) {
            return -1;
        }
    }
    return 0;
}

static void begin_chunk(const struct trainer *trainer, struct chunk *chunk,
                        int count)
{
    pool_begin_step(&chunk->pool);
    pool_begin_step(&chunk->spare);
    chunk->n_ended = 0;
    for (int i = 0; i < count; i++) {
        chunk->flights[i] = (struct flight){ 0 };
        if (trainer->offsets != NULL) {
            chunk->flights[i].offsets =
                trainer->offsets + i * config_offsets(&chunk->model.config);
        }
    }
}

static void begin(struct trainer *trainer, int count)
{
    struct device *dev = trainer->dev;

    for (int i = 0; i < trainer->n_chunks; i++) {
        begin_chunk(trainer, &trainer->chunks[i], count);
    }

    DEVICE_CALL(dev, cuMemsetD32Async, device_address(trainer->model.g), 0,
                trainer->model.n, trainer->streams[0]);
    embedding_head_begin_step(trainer, count);
    if (trainer->n_streams <= 1) {
        return;
    }
    DEVICE_CALL(dev, cuEventRecord, trainer->begin, trainer->streams[0]);
    for (int i = 1; i < trainer->n_streams && i < count; i++) {
        DEVICE_CALL(dev, cuStreamWaitEvent, trainer->streams[i], trainer->begin,
                    CU_EVENT_WAIT_DEFAULT);
    }
}

/* Sums the gradients of the embedding and of the head if they have the same
 * weights, on whichever stages they are. */
static void tie(const struct trainer *trainer, const struct queue *queue)
{
    const struct model *model = &trainer->model;
    const size_t n = VOCAB * (size_t)model->config.hidden;
    float *token = model->g + model->token_w, *head = model->g + model->head_w;

    if (!model->config.tied || (!model->embeds && !model->heads)) {
        return;
    }
    if (!model->embeds || !model->heads) {
        comm_sum(&trainer->options->ranks->ends, model->embeds ? token : head,
                 n, queue->stream);
        return;
    }
    LAUNCH(queue, column_sum, column_sum_args, blocks_of(n, COLUMN_LANES),
           .x = head, .sum = token, .rows = 1, .cols = (int)n);
    DEVICE_CALL(queue->dev, cuMemcpyDtoDAsync, device_address(head),
                device_address(token), n * sizeof(float), queue->stream);
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

    if (trainer->pipeline == NULL) {
        trainer_wait_end(trainer, queue.stream, count - 1);
    }
    ranks_sum(options->ranks, &trainer->model, queue.stream);
    tie(trainer, &queue);
    optimizer_step(&trainer->model, &queue, options->lr, options->warmup);
}

static int rest(struct trainer *trainer, bool step_ended)
{
    return trainer->host != NULL ? host_rest(trainer->host, step_ended) : 0;
}

/* Issues all forwards and backwards, one after the other. */
static int issue_all(struct trainer *trainer, int count)
{
    const int in_flight = trainer->options->in_flight;
    int oldest = 0;

    for (int i = 0; i < count; i++) {
        if (i - oldest == in_flight &&
            (backward_and_wgrad(trainer, oldest++) != 0 ||
             rest(trainer, false) != 0)) {
            return -1;
        }
        if (microbatch_forward(trainer, i) != 0) {
            return -1;
        }
    }
    while (oldest < count) {
        if (backward_and_wgrad(trainer, oldest++) != 0 ||
            rest(trainer, false) != 0) {
            return -1;
        }
    }
    return rest_of_wgrad(trainer, count);
}

/* Tells the host how many microbatches are in flight in each chunk at most. */
static int begin_hosted(struct trainer *trainer, int count)
{
    int in_flight[MAX_CHUNKS];

    for (int i = 0; i < trainer->n_chunks; i++) {
        const int n = trainer->pipeline != NULL
                          ? pipeline_in_flight(trainer, count, i)
                          : options_sets(trainer->options);

        in_flight[i] = n < count ? n : count;
        if (in_flight[i] > MAX_SLOTS) {
            in_flight[i] = MAX_SLOTS;
        }
    }
    return host_begin_step(trainer->host, in_flight);
}

/* Runs forwards and backwards.  The library takes part unless the sets keep
 * what a stash would. */
static int run_all(struct trainer *trainer, int count)
{
    struct host *host = trainer->host;
    int status;

    if (trainer->takes_spare) {
        trainer->host = NULL;
    }
    if (trainer->host != NULL && begin_hosted(trainer, count) != 0) {
        return -1;
    }
    begin(trainer, count);
    status = (trainer->pipeline != NULL ? pipeline_step
              : trainer->overlaps       ? overlap_step
                                        : issue_all)(trainer, count);
    trainer->host = host;
    return status;
}

/* Ends the step's use of the stash, and runs the step once more if one on any
 * rank had too few pages. */
static int settle(struct trainer *trainer, int count)
{
    bool again;

    if (trainer->stasher == NULL) {
        return 0;
    }
    if (schedule_wait(trainer) != 0 ||
        stasher_ask(trainer->stasher, &again) != 0) {
        return -1;
    }
    if (!again) {
        return 0;
    }
    stasher_stand_aside(trainer->stasher);
    return run_all(trainer, count) == 0 && schedule_wait(trainer) == 0
               ? stasher_come_back(trainer->stasher)
               : -1;
}

int schedule_wait(struct trainer *trainer)
{
    struct ranks *ranks = trainer->options->ranks;
    const struct exchange *exchange = ranks_ep(ranks);

    if (pipeline_synchronize(trainer) != 0) {
        return -1;
    }
    if (exchange != NULL &&
        exchange_synchronize(exchange, trainer->streams[0]) != 0) {
        return -1;
    }
    return ranks == NULL ? device_synchronize(trainer->dev, trainer->streams[0])
                         : comm_synchronize(&ranks->world, trainer->streams[0],
                                            &ranks->watch);
}

int schedule_step(struct trainer *trainer, int count)
{
    const bool hosted = !trainer->takes_spare;

    if (run_all(trainer, count) != 0 || settle(trainer, count) != 0) {
        return -1;
    }
    optimize(trainer, count);
    if (trainer->host != NULL && hosted &&
        (host_end_step(trainer->host) != 0 || rest(trainer, true) != 0)) {
        return -1;
    }
    return trainer->dev->code == CUDA_SUCCESS ? 0 : -1;
}
