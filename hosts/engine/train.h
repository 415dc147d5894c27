/*
 * train.h - one training run in one mode.
 *
 * train() makes everything anew from the seed, trains, and frees everything,
 * so that modes cannot see each other.  A step is issued by schedule_step()
 * in the same order in every mode; modes differ in how a microbatch's parts
 * reach the device:
 *
 *     eager   the kernels, launched one by one
 *     graph   through the library's hooks (host.h)
 *     step    schedule_step() captured once per microbatch count and launched
 *             as one graph (step_graph.h): the floor that graphs can reach
 *     plain   as eager; where the others delay weights' gradients, the joint
 *             backward that they are compared with
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_TRAIN_H
#define ENGINE_TRAIN_H

#include "options.h"
#include "parts.h"
#include "pool.h"
#include "text.h"

#include <graphhooks/session.h>

struct host;

/* A microbatch on its way through a step. */
struct flight {
    const struct set *set; /* NULL until its first part knows */
    struct pooled *pooled; /* where the set is from; NULL: a slot's */
    uint32_t slot;
    const float *out; /* what the last part wrote */
};

struct trainer {
    struct device *dev;
    const struct options *options;
    struct model model;
    struct pool pool;
    int max_count;

    CUstream streams[MAX_STREAMS];
    int n_streams; /* 0: the legacy default stream, in streams[0] */
    CUevent begin; /* the step's inputs are there, gradients are zero */
    CUevent *done; /* one a microbatch: its backward is issued */
    /* when weights' gradients are delayed */
    CUstream wgrad; /* their own, where there are several; else NULL */
    CUevent *added; /* one a microbatch: its weights' gradients are issued */

    /* for every microbatch of a step */
    struct flight *flights;
    float *x;                  /* device: what its first part reads */
    float *d_head;             /* device: what its last part's backward reads */
    int *tokens, *tokens_host; /* tokens, then targets */
    float *losses, *losses_host;

    struct host *host; /* in graph mode */
};

/* All but the host.  0, or -1: dev->error; trainer_free() takes it either
 * way. */
int trainer_init(struct trainer *trainer, const struct options *options,
                 enum mode mode, struct device *dev);
void trainer_free(struct trainer *trainer);

/* Leases a set of the pool for a microbatch and orders it on the stream after
 * the set's last user.  0, or -1: dev->error. */
int pool_lease_for(struct trainer *trainer, int microbatch, CUstream stream);

/* What a run leaves behind. */
struct result {
    enum mode mode;
    int steps;
    double *loss, *step_ms, *host_ms; /* one a step */
    uint64_t *recordings;             /* after each step; graph mode */
    uint64_t weights_hash;
    bool has_stats;
    const char *(*reason_name)(gh_reason); /* the library's; it stays loaded */
    gh_stats stats;
    uint64_t wgrad_replays; /* those of stats.replays for delayed gradients */
};

/* Called after every step, to report progress; false ends the run there. */
typedef bool train_progress_fn(const struct options *options, enum mode mode,
                               int step, double loss, double step_ms);

/* Opens what graph mode needs and closes it again: 0, or -1 with a sentence;
 * *bad_option says that an option is wrong. */
int train_check(const struct options *options, struct device *dev,
                bool *bad_option, char *error, size_t error_bytes);

/* 0; or -1 with one sentence in error, everything freed but *result, which
 * result_free() takes either way. */
int train(const struct options *options, struct device *dev,
          const struct text *text, enum mode mode, train_progress_fn *progress,
          struct result *result, char *error, size_t error_bytes);
void result_free(struct result *result);

/* Issues one step of `count` microbatches.  0, or -1 with a text in
 * trainer->dev->error or in the host's. */
int schedule_step(struct trainer *trainer, int count);

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
