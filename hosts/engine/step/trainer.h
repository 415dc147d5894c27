/*
 * trainer.h - what a run trains with: the model, streams, events, and the
 * microbatches on their way.
 *
 * Everything that has a hand in a step reads it: the schedule, the passes
 * through the library, the graph of a whole step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_TRAINER_H
#define ENGINE_TRAINER_H

#include "step/options.h"
#include "step/pool.h"
#include "step/text.h"

struct host;

/* A microbatch on its way through a step. */
struct flight {
    const struct set *set; /* NULL until its first part knows */
    struct pooled *pooled; /* where the set is from; NULL: a slot's */
    uint32_t slot;
    const float *out; /* what the last part wrote */
    const int *offsets; /* device: of documents; NULL: there are none */
};

struct trainer {
    struct device *dev;
    const struct options *options;
    struct model model; /* of the longest sequences: what sets are made for */
    struct model shapes[MAX_LENGTHS]; /* the same of each shape */
    int n_shapes;
    size_t *saved_bytes[MAX_LENGTHS]; /* of each: set_measure_saved() */
    struct pool pool;
    int max_count;
    bool overlaps; /* microbatches are issued by pairs: overlap.h */

    CUstream streams[MAX_STREAMS];
    int n_streams; /* 0: the legacy default stream, in streams[0] */
    CUevent begin; /* the step's inputs are there, gradients are zero */
    CUevent *done; /* one a microbatch: its backward is issued */
    /* when weights' gradients are delayed */
    CUstream wgrad; /* their own, where there are several; else NULL */
    CUevent *added; /* one a microbatch: its weights' gradients are issued */

    /* for every microbatch of a step */
    struct flight *flights;
    int *shape_of;             /* which of the shapes it has */
    float *x;                  /* device: what its first part reads */
    float *d_head;             /* device: what its last part's backward reads */
    int *tokens, *tokens_host; /* tokens, then targets; where ranks share
                                  sequences, then positions */
    float *losses, *losses_host;
    struct packing *packings; /* their offsets in offsets_host */
    int *offsets, *offsets_host, *lengths_host; /* of documents; else NULL */

    struct host *host; /* in graph mode */
};

/* All but the host.  0, or -1: dev->error; trainer_free() takes it either
 * way. */
int trainer_init(struct trainer *trainer, const struct options *options,
                 enum mode mode, struct device *dev);
void trainer_free(struct trainer *trainer);

/* Waits for a microbatch's backward, unless the stream's order does it. */
void trainer_wait_done(const struct trainer *trainer, CUstream stream,
                       int microbatch);
/* Waits until a microbatch has added to all gradients and needs its set no
 * more. */
void trainer_wait_end(const struct trainer *trainer, CUstream stream,
                      int microbatch);

/* Leases a set of the pool for a microbatch and orders it on the stream after
 * the set's last user.  0, or -1: dev->error. */
int trainer_lease(struct trainer *trainer, int microbatch, CUstream stream);

/* The model over sequences as long as the microbatch's. */
static inline const struct model *model_of(const struct trainer *trainer,
                                           int microbatch)
{
    return &trainer->shapes[trainer->shape_of[microbatch]];
}

/* Of the ranks that share its sequences; NULL: none do. */
static inline const struct comm *comm_of(const struct trainer *trainer,
                                         int microbatch)
{
    const struct model *model = model_of(trainer, microbatch);

    return config_cp(&model->config) == 1
               ? NULL
               : &trainer->options->ranks
                      ->groups[trainer->shape_of[microbatch]];
}

/* Rows of tokens, targets and so on. */
static inline int trainer_columns(const struct trainer *trainer)
{
    return trainer->options->n_cp > 0 ? 3 : 2;
}

static inline CUstream stream_of(const struct trainer *trainer, int microbatch)
{
    return trainer->n_streams == 0
               ? trainer->streams[0]
               : trainer->streams[microbatch % trainer->n_streams];
}

/* Of the gradients of weights, when those are delayed. */
static inline CUstream stream_of_wgrad(const struct trainer *trainer)
{
    return trainer->wgrad != NULL ? trainer->wgrad : trainer->streams[0];
}

static inline float *row_block(const struct trainer *trainer, float *blocks,
                               int microbatch)
{
    const struct config *config = &trainer->model.config;

    return blocks + (size_t)microbatch * (size_t)config_rows(config) *
                        (size_t)config->hidden;
}

#endif
