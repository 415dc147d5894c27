/*
 * trainer.h - what a run trains with: the model, streams, events, and the
 * microbatches under way.
 *
 * Everything that takes part in a step reads it: the schedule, the passes
 * through the library, and the graph of a whole step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_TRAINER_H
#define ENGINE_TRAINER_H

#include "step/options.h"
#include "step/pool.h"
#include "step/text.h"

struct host;
struct pipeline;
struct exchanger;
struct stasher;
struct bare;

/* A microbatch under way in a step. */
struct flight {
    const struct set *set; /* NULL until its first part has one */
    struct pooled *pooled; /* the source of the set; NULL: a slot */
    uint32_t slot;
    const float *out; /* what the last part wrote */
    const float *dx;  /* the gradient of what the first part read */
    int ended; /* how many backwards of the chunk had ended with its own; 0:
                  it has not */
    uint32_t landed; /* landing.h: the place that has its input, from 1; 0:
                        none */
    uint32_t tokens_landed; /* and its tokens */
    bool gradient_landed; /* its slot's place has the gradient */
    const int *offsets; /* device: of documents; NULL: no documents */
};

/* In graph modes: where a chunk of a stage finds what it works on;
 * landing.h. */
struct landing {
    uint32_t n;                /* slots */
    float *x, *kept, *dy;      /* device, of each slot; NULL: nothing is sent */
    int *tokens, *tokens_kept; /* device, of each slot; NULL: no graph reads
                                  them */
    CUevent read[MAX_SLOTS];   /* behind the last forward that has read x and
                                  tokens */
    CUevent came[MAX_SLOTS];   /* behind the copy of tokens */
    uint64_t held;             /* bits: slots with a microbatch in them */
    uint64_t full;             /* bits: x has what no forward has read */
    uint64_t was_read;         /* bits: x and tokens were read in this step */
};

/* A run of the model's layers, and the microbatches in it: all layers, or a
 * chunk of a stage of a pipeline. */
struct chunk {
    int index;
    struct model model; /* for the longest sequences; sets are made for it */
    struct model shapes[MAX_LENGTHS]; /* the same for each shape */
    size_t *saved_bytes[MAX_LENGTHS]; /* of each shape: set_measure_saved() */
    struct pool pool;
    struct model whole; /* the model, for sets that keep all rows themselves, */
    struct pool spare;  /* which steps without a stash take */

    /* one for each microbatch of a step */
    struct flight *flights;
    int n_ended;    /* backwards of the step, in a pipeline */
    CUevent *done;  /* its backward is issued */
    CUevent *added; /* its gradients of weights are issued; if those are
                       delayed on a stream of their own */
    float *x;       /* device: what its first part reads */
    float *d_head;  /* device: what its last part's backward reads */
    struct landing landing;
};

struct trainer {
    struct device *dev;
    const struct options *options;
    struct model model; /* for the longest sequences, with all chunks */
    struct model shapes[MAX_LENGTHS]; /* the same for each shape */
    int n_shapes;
    struct chunk *chunks;
    int n_chunks;
    struct chunk *chunk; /* the one that runs */
    int max_count;
    bool overlaps; /* microbatches run in pairs: overlap.h */

    CUstream streams[MAX_STREAMS];
    int n_streams; /* 0: the legacy default stream, in streams[0] */
    CUevent begin; /* the step's inputs are there, gradients are zero */
    CUstream wgrad; /* of delayed gradients of weights, if there are several
                       streams; else NULL */

    /* for every microbatch of a step */
    int *shape_of;             /* the number of its shape */
    int *tokens, *tokens_host; /* tokens, then targets; if ranks share
                                  sequences, then positions */
    float *losses, *losses_host;
    float *scales; /* device, of each shape: of a step's gradients of losses */
    struct packing *packings; /* their offsets are in offsets_host */
    int *offsets, *offsets_host, *lengths_host; /* of documents; else NULL */

    struct pipeline *pipeline; /* NULL: there is one stage */
    uint64_t limit; /* of the library's memory, in bytes; 0: as the variable
                       says */
    CUstream aside;   /* of copies of tokens to landing.tokens */
    CUevent uploaded; /* the step's tokens are there */
    bool times_passes; /* of the current step; in a pipeline */
    struct host *host; /* in graph mode */
    struct bare *bare; /* in bare mode */
    struct exchanger *exchanger; /* NULL: the engine itself exchanges */
    struct stasher *stasher; /* NULL: the sets keep all rows */
    bool stashes;     /* passes of the current step push rows and pop them */
    bool takes_spare; /* it runs without the library, and with sets that keep
                         all rows */
};

/* Makes everything but the host.  Returns 0, or -1: dev->error.  In both cases
 * trainer_free() frees it. */
int trainer_init(struct trainer *trainer, const struct options *options,
                 enum mode mode, struct device *dev);
void trainer_free(struct trainer *trainer);

/* Waits for a microbatch's backward, unless the stream's order already does. */
void trainer_wait_done(const struct trainer *trainer, CUstream stream,
                       int microbatch);
/* Waits until a microbatch has added to all gradients and needs its set no
 * longer. */
void trainer_wait_end(const struct trainer *trainer, CUstream stream,
                      int microbatch);

/* Leases a set of the pool for a microbatch, and lets the stream wait for the
 * set's last user.  Returns 0, or -1: dev->error. */
int trainer_lease(struct trainer *trainer, int microbatch, CUstream stream);

/* The chunk's model for sequences as long as the microbatch's. */
static inline const struct model *model_of(const struct trainer *trainer,
                                           int microbatch)
{
    return &trainer->chunk->shapes[trainer->shape_of[microbatch]];
}

/* The communicator of the ranks that share its sequences; NULL: none do. */
static inline const struct comm *comm_of(const struct trainer *trainer,
                                         int microbatch)
{
    const struct model *model = model_of(trainer, microbatch);

    return config_cp(&model->config) == 1
               ? NULL
               : &trainer->options->ranks
                      ->groups[trainer->shape_of[microbatch]];
}

/* Whether the chunk has the embedding, or the head, and it does not run with
 * the parts. */
static inline bool trainer_embeds_apart(const struct trainer *trainer)
{
    const struct model *model = &trainer->chunk->model;

    return model->embeds && (trainer->host == NULL || !model->folds_embedding);
}

static inline bool trainer_heads_apart(const struct trainer *trainer)
{
    const struct model *model = &trainer->chunk->model;

    return model->heads && (trainer->host == NULL || !model->folds_head);
}

/* How many rows there are of tokens, targets and so on. */
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

/* The stream for delayed gradients of weights. */
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
