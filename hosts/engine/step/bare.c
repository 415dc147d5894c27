/*
 * bare.c - see bare.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/bare.h"

#include <stdlib.h>

/* The graph of a pass in one set. */
struct bare_graph {
    const struct set *set;
    CUgraphExec exec;
};

struct bare_graphs {
    struct bare_graph *all;
    int n;
};

struct bare {
    struct trainer *trainer;
    CUstream stream; /* of captures, which cannot be on the legacy stream */
    struct bare_graphs *graphs; /* by chunk, pass and microbatch */
};

static size_t count_of(const struct trainer *trainer)
{
    return (size_t)trainer->n_chunks * BARE_PASSES * (size_t)trainer->max_count;
}

struct bare *bare_open(struct trainer *trainer)
{
    struct bare *bare = calloc(1, sizeof(*bare));

    if (bare != NULL) {
        bare->trainer = trainer;
        bare->graphs = calloc(count_of(trainer), sizeof(*bare->graphs));
    }
    if (bare == NULL || bare->graphs == NULL) {
        (void)device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    } else if (DEVICE_CALL(trainer->dev, cuStreamCreate, &bare->stream,
                           CU_STREAM_NON_BLOCKING) == 0) {
        return bare;
    }
    bare_close(bare);
    return NULL;
}

void bare_close(struct bare *bare)
{
    const struct driver *drv;

    if (bare == NULL) {
        return;
    }
    drv = &bare->trainer->dev->drv;
    for (size_t i = 0; bare->graphs != NULL && i < count_of(bare->trainer);
         i++) {
        for (int j = 0; j < bare->graphs[i].n; j++) {
            (void)drv->cuGraphExecDestroy(bare->graphs[i].all[j].exec);
        }
        free(bare->graphs[i].all);
    }
    if (bare->stream != NULL) {
        (void)drv->cuStreamDestroy(bare->stream);
    }
    free(bare->graphs);
    free(bare);
}

/* Where the trainer has the stream of a pass. */
static CUstream *stream_at(struct trainer *trainer, enum bare_pass pass,
                           int microbatch)
{
    if (pass == BARE_WGRAD) {
        return trainer->wgrad != NULL ? &trainer->wgrad : &trainer->streams[0];
    }
    return &trainer->streams[trainer->n_streams == 0
                                 ? 0
                                 : microbatch % trainer->n_streams];
}

/* Ends the capture whatever happened in it.  On failure *graph_p is NULL. */
static int capture(struct bare *bare, CUstream *at, int microbatch,
                   void (*issue)(struct trainer *trainer, int microbatch),
                   CUgraph *graph_p)
{
    struct device *dev = bare->trainer->dev;
    const CUstream own = *at;
    CUresult code;

    if (DEVICE_CALL(dev, cuStreamBeginCapture, bare->stream,
                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != 0) {
        return -1;
    }
    *at = bare->stream;
    issue(bare->trainer, microbatch);
    *at = own;
    code = dev->drv.cuStreamEndCapture(bare->stream, graph_p);
    return device_check(dev, "cuStreamEndCapture", code) == 0 &&
                   dev->code == CUDA_SUCCESS
               ? 0
               : -1;
}

static int make(struct bare *bare, CUstream *at, int microbatch,
                void (*issue)(struct trainer *trainer, int microbatch),
                CUgraphExec *exec_p)
{
    struct device *dev = bare->trainer->dev;
    CUgraph graph = NULL;

    if (capture(bare, at, microbatch, issue, &graph) == 0) {
        DEVICE_CALL(dev, cuGraphInstantiateWithFlags, exec_p, graph, 0);
        DEVICE_CALL(dev, cuGraphUpload, *exec_p, *at);
    }
    if (graph != NULL) {
        (void)dev->drv.cuGraphDestroy(graph);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

/* Returns the graph of a set, or room for it; NULL: dev->error. */
static struct bare_graph *find(struct device *dev, struct bare_graphs *graphs,
                               const struct set *set)
{
    struct bare_graph *more;

    for (int i = 0; i < graphs->n; i++) {
        if (graphs->all[i].set == set) {
            return &graphs->all[i];
        }
    }
    more = realloc(graphs->all, (size_t)(graphs->n + 1) * sizeof(*more));
    if (more == NULL) {
        (void)device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    graphs->all = more;
    more[graphs->n] = (struct bare_graph){ .set = set };
    return &more[graphs->n];
}

int bare_run(struct bare *bare, enum bare_pass pass, int microbatch,
             void (*issue)(struct trainer *trainer, int microbatch))
{
    struct trainer *trainer = bare->trainer;
    CUstream *at = stream_at(trainer, pass, microbatch);
    struct bare_graphs *graphs =
        &bare->graphs[(trainer->chunk->index * BARE_PASSES + (int)pass) *
                          trainer->max_count +
                      microbatch];
    struct bare_graph *graph =
        find(trainer->dev, graphs, trainer->chunk->flights[microbatch].set);

    if (graph == NULL) {
        return -1;
    }
    if (graph->exec == NULL) {
        if (make(bare, at, microbatch, issue, &graph->exec) != 0) {
            if (graph->exec != NULL) {
                graphs->n++; /* bare_close() destroys it */
            }
            return -1;
        }
        graphs->n++;
    }
    return DEVICE_CALL(trainer->dev, cuGraphLaunch, graph->exec, *at);
}
