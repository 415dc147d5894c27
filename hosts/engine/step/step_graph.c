/*
 * step_graph.c - see step_graph.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/step_graph.h"

#include "step/schedule.h"

#include <stdlib.h>
#include <string.h>

int step_graphs_init(struct step_graphs *graphs, struct trainer *trainer)
{
    memset(graphs, 0, sizeof(*graphs));
    graphs->trainer = trainer;
    graphs->execs =
        calloc((size_t)trainer->max_count + 1, sizeof(*graphs->execs));
    if (graphs->execs == NULL) {
        return device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    return DEVICE_CALL(trainer->dev, cuStreamCreate, &graphs->stream,
                       CU_STREAM_NON_BLOCKING);
}

void step_graphs_free(struct step_graphs *graphs)
{
    const struct trainer *trainer = graphs->trainer;

    if (trainer == NULL) {
        return;
    }
    for (int i = 0; graphs->execs != NULL && i <= trainer->max_count; i++) {
        if (graphs->execs[i] != NULL) {
            (void)trainer->dev->drv.cuGraphExecDestroy(graphs->execs[i]);
        }
    }
    if (graphs->stream != NULL) {
        (void)trainer->dev->drv.cuStreamDestroy(graphs->stream);
    }
    free(graphs->execs);
    memset(graphs, 0, sizeof(*graphs));
}

/* A capture allows no allocation, so the pool is filled before it. */
static int fill_pool(struct trainer *trainer, int count)
{
    const int most = options_sets(trainer->options);
    const int wanted = count < most ? count : most;

    pool_begin_step(&trainer->chunk->pool);
    for (int i = 0; i < wanted; i++) {
        if (pool_lease(&trainer->chunk->pool) == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Ends the capture whatever happened in it.  On failure *graph_p is NULL. */
static int capture(struct step_graphs *graphs, int count, CUgraph *graph_p)
{
    struct trainer *trainer = graphs->trainer;
    struct device *dev = trainer->dev;
    const CUstream stream0 = trainer->streams[0];
    CUresult code;

    if (DEVICE_CALL(dev, cuStreamBeginCapture, graphs->stream,
                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != 0) {
        return -1;
    }
    trainer->streams[0] = graphs->stream;
    (void)schedule_step(trainer, count);
    trainer->streams[0] = stream0;

    code = dev->drv.cuStreamEndCapture(graphs->stream, graph_p);
    return device_check(dev, "cuStreamEndCapture", code) == 0 &&
                   dev->code == CUDA_SUCCESS
               ? 0
               : -1;
}

static int make(struct step_graphs *graphs, int count)
{
    struct device *dev = graphs->trainer->dev;
    CUgraph graph = NULL;

    if (fill_pool(graphs->trainer, count) == 0 &&
        capture(graphs, count, &graph) == 0) {
        DEVICE_CALL(dev, cuGraphInstantiateWithFlags, &graphs->execs[count],
                    graph, 0);
        DEVICE_CALL(dev, cuGraphUpload, graphs->execs[count],
                    graphs->trainer->streams[0]);
    }
    if (graph != NULL) {
        (void)dev->drv.cuGraphDestroy(graph);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

int step_graphs_launch(struct step_graphs *graphs, int count)
{
    struct trainer *trainer = graphs->trainer;

    if (graphs->execs[count] == NULL && make(graphs, count) != 0) {
        return -1;
    }
    return DEVICE_CALL(trainer->dev, cuGraphLaunch, graphs->execs[count],
                       trainer->streams[0]);
}
