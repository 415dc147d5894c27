/*
 * trainer.c - makes and frees a trainer, and orders its microbatches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/trainer.h"

#include "step/pipeline_schedule.h"

#include <stdlib.h>
#include <string.h>

static void make_streams(struct trainer *trainer)
{
    struct device *dev = trainer->dev;

    if (!trainer->options->legacy) {
        for (int i = 0; i < trainer->options->streams; i++) {
            if (DEVICE_CALL(dev, cuStreamCreate, &trainer->streams[i],
                            CU_STREAM_NON_BLOCKING) == 0) {
                trainer->n_streams = i + 1;
            }
        }
    }
    DEVICE_CALL(dev, cuEventCreate, &trainer->begin, CU_EVENT_DISABLE_TIMING);
    if (trainer->model.delay_wgrad && trainer->n_streams > 1) {
        DEVICE_CALL(dev, cuStreamCreate, &trainer->wgrad,
                    CU_STREAM_NON_BLOCKING);
    }
}

/* Makes the packings of every microbatch.  All offsets are in one piece, to be
 * copied at once. */
static void make_packings(struct trainer *trainer)
{
    struct device *dev = trainer->dev;
    const struct config *config = &trainer->model.config;
    const size_t n = (size_t)trainer->max_count;
    const size_t offsets = (size_t)config_offsets(config);
    const size_t documents = (size_t)config->documents;

    trainer->offsets = device_alloc(dev, n * offsets * sizeof(int));
    trainer->offsets_host = device_alloc_host(dev, n * offsets * sizeof(int));
    trainer->lengths_host = calloc(2 * n * documents, sizeof(int));
    trainer->packings = calloc(n, sizeof(*trainer->packings));
    if (trainer->offsets_host == NULL || trainer->lengths_host == NULL ||
        trainer->packings == NULL) {
        (void)device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        trainer->packings[i] = (struct packing){
            .lengths = trainer->lengths_host + 2 * i * documents,
            .padded = trainer->lengths_host + (2 * i + 1) * documents,
            .offsets = trainer->offsets_host + i * offsets,
        };
    }
}

static void make_buffers(struct trainer *trainer)
{
    struct device *dev = trainer->dev;
    const struct config *config = &trainer->model.config;
    const size_t n = (size_t)trainer->max_count;
    const size_t rows = (size_t)config_rows(config);
    const size_t columns = (size_t)trainer_columns(trainer);

    trainer->tokens = device_alloc(dev, n * columns * rows * sizeof(int));
    trainer->tokens_host =
        device_alloc_host(dev, n * columns * rows * sizeof(int));
    if (config->documents > 0) {
        make_packings(trainer);
    }
    trainer->losses = device_alloc(dev, n * sizeof(float));
    trainer->scales = device_alloc(
        dev, (size_t)options_shapes(trainer->options) * sizeof(float));
    trainer->losses_host = device_alloc_host(dev, n * sizeof(float));
}

/* Makes the model of each shape, which is a length or a number of ranks.  One
 * that fails is counted too, as it may have memory by then. */
static void make_shapes(struct trainer *trainer)
{
    const struct options *options = trainer->options;

    for (int i = 0; i < options_shapes(options); i++) {
        trainer->n_shapes = i + 1;
        (void)model_view(&trainer->shapes[i], &trainer->model,
                         options_length(options, i), options_cp(options, i));
    }
}

static void make_events(struct trainer *trainer, CUevent *events)
{
    for (int i = 0; i < trainer->max_count; i++) {
        DEVICE_CALL(trainer->dev, cuEventCreate, &events[i],
                    CU_EVENT_DISABLE_TIMING);
    }
}

static int no_memory(struct trainer *trainer)
{
    return device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
}

/* Makes a chunk, once there is all that it uses. */
static int make_chunk(struct trainer *trainer, struct chunk *chunk)
{
    struct device *dev = trainer->dev;
    const size_t n = (size_t)trainer->max_count;
    const struct config *config = &trainer->model.config;
    const size_t hidden = n * (size_t)config_rows(config) *
                          (size_t)config->hidden * sizeof(float);

    model_view_chunk(&chunk->model, &trainer->model, chunk->index);
    chunk->whole = chunk->model;
    chunk->whole.offload = 0;
    pool_init(&chunk->pool, &chunk->model, dev);
    pool_init(&chunk->spare, &chunk->whole, dev);
    chunk->flights = calloc(n, sizeof(*chunk->flights));
    chunk->done = calloc(n, sizeof(CUevent));
    chunk->added = calloc(n, sizeof(CUevent));
    if (chunk->flights == NULL || chunk->done == NULL || chunk->added == NULL) {
        return no_memory(trainer);
    }
    for (int i = 0; i < trainer->n_shapes; i++) {
        model_view_chunk(&chunk->shapes[i], &trainer->shapes[i], chunk->index);
        if (set_measure_saved(&chunk->shapes[i], &chunk->saved_bytes[i]) != 0) {
            return no_memory(trainer);
        }
    }
    chunk->x = device_alloc(dev, hidden);
    chunk->d_head = device_alloc(dev, hidden);
    make_events(trainer, chunk->done);
    if (trainer->wgrad != NULL) {
        make_events(trainer, chunk->added);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

static int make_chunks(struct trainer *trainer)
{
    for (int i = 0; i < trainer->n_chunks; i++) {
        trainer->chunks[i].index = i;
        if (make_chunk(trainer, &trainer->chunks[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

int trainer_init(struct trainer *trainer, const struct options *options,
                 enum mode mode, struct device *dev)
{
    struct config config = options->config;

    memset(trainer, 0, sizeof(*trainer));
    trainer->dev = dev;
    trainer->options = options;
    trainer->max_count = options_max_count(options);
    pipeline_share(options, &config);
    trainer->n_chunks = options_vpp(options);
    trainer->chunks =
        calloc((size_t)trainer->n_chunks, sizeof(*trainer->chunks));
    trainer->chunk = trainer->chunks;
    trainer->shape_of =
        calloc((size_t)trainer->max_count, sizeof(*trainer->shape_of));
    if (trainer->shape_of == NULL || trainer->chunks == NULL ||
        model_init(&trainer->model, &config) != 0) {
        return no_memory(trainer);
    }
    trainer->overlaps = mode_overlaps(mode);
    trainer->model.delay_wgrad = mode_delays_wgrad(options, mode);
    trainer->model.offload = mode_offloads(mode) ? options->offloaded : 0;
    (void)model_upload(&trainer->model, dev);
    make_shapes(trainer);
    make_buffers(trainer);
    make_streams(trainer);
    if (make_chunks(trainer) != 0) {
        return -1;
    }
    /* A copy from pageable memory may return before its last bytes have
     * arrived, and the engine's streams do not wait for the default one.  The
     * whole context must not be waited for, because another rank may use it
     * too. */
    device_synchronize(dev, CU_STREAM_LEGACY);
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

static void free_events(struct trainer *trainer, CUevent *events)
{
    for (int i = 0; events != NULL && i < trainer->max_count; i++) {
        if (events[i] != NULL) {
            (void)trainer->dev->drv.cuEventDestroy(events[i]);
        }
    }
    free(events);
}

static void free_chunk(struct trainer *trainer, struct chunk *chunk)
{
    struct device *dev = trainer->dev;

    free_events(trainer, chunk->done);
    free_events(trainer, chunk->added);
    device_free(dev, chunk->x);
    device_free(dev, chunk->d_head);
    pool_free(&chunk->pool);
    pool_free(&chunk->spare);
    for (int i = 0; i < trainer->n_shapes; i++) {
        free(chunk->saved_bytes[i]);
    }
    free(chunk->flights);
}

void trainer_free(struct trainer *trainer)
{
    struct device *dev = trainer->dev;

    for (int i = 0; i < trainer->n_streams; i++) {
        (void)dev->drv.cuStreamDestroy(trainer->streams[i]);
    }
    if (trainer->wgrad != NULL) {
        (void)dev->drv.cuStreamDestroy(trainer->wgrad);
    }
    if (trainer->begin != NULL) {
        (void)dev->drv.cuEventDestroy(trainer->begin);
    }
    device_free(dev, trainer->tokens);
    device_free_host(dev, trainer->tokens_host);
    device_free(dev, trainer->offsets);
    device_free_host(dev, trainer->offsets_host);
    free(trainer->lengths_host);
    free(trainer->packings);
    device_free(dev, trainer->losses);
    device_free(dev, trainer->scales);
    device_free_host(dev, trainer->losses_host);
    for (int i = 0; trainer->chunks != NULL && i < trainer->n_chunks; i++) {
        free_chunk(trainer, &trainer->chunks[i]);
    }
    for (int i = 0; i < trainer->n_shapes; i++) {
        model_view_free(&trainer->shapes[i]);
    }
    model_free(&trainer->model);
    free(trainer->chunks);
    free(trainer->shape_of);
}

/* ---- the order across streams ------------------------------------------- */

void trainer_wait_done(const struct trainer *trainer, CUstream stream,
                       int microbatch)
{
    if (stream_of(trainer, microbatch) != stream) {
        DEVICE_CALL(trainer->dev, cuStreamWaitEvent, stream,
                    trainer->chunk->done[microbatch], CU_EVENT_WAIT_DEFAULT);
    }
}

void trainer_wait_end(const struct trainer *trainer, CUstream stream,
                      int microbatch)
{
    if (trainer->wgrad == NULL) {
        trainer_wait_done(trainer, stream, microbatch);
        return;
    }
    DEVICE_CALL(trainer->dev, cuStreamWaitEvent, stream,
                trainer->chunk->added[microbatch], CU_EVENT_WAIT_DEFAULT);
}

int trainer_lease(struct trainer *trainer, int microbatch, CUstream stream)
{
    struct flight *flight = &trainer->chunk->flights[microbatch];

    flight->pooled = pool_lease(trainer->takes_spare ? &trainer->chunk->spare
                                                     : &trainer->chunk->pool);
    if (flight->pooled == NULL) {
        return -1;
    }
    flight->set = &flight->pooled->set;
    if (flight->pooled->last >= 0) {
        trainer_wait_end(trainer, stream, flight->pooled->last);
    }
    return 0;
}
