/*
 * several.c - several ranks have the gradients that one has of all their text.
 *
 * Losses say little of gradients, as AdamW takes no notice of their size.  So
 * one step is issued by hand, and what the optimizer was given is read back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/find.h"
#include "step/cp_batches.h"
#include "step/schedule.h"
#include "step/train.h"
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 3
};

static char letters[600];
static const struct text text = { (unsigned char *)letters,
                                  sizeof(letters) - 1 };
static struct nccl nccl;
static char driver[4096];

struct rank {
    struct options options;
    struct ranks ranks;
    struct device dev;
    const ncclUniqueId *id;
    pthread_t thread;
    float *g; /* after one step; NULL: train() is what is asked */
    struct result result;
    size_t n;
    int status;
};

/* One step's text, as train() lays it out. */
static int give_text(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    const int rows = config_rows(&trainer->model.config);
    struct device *dev = trainer->dev;

    for (int i = 0; i < options->counts[0]; i++) {
        int *tokens = trainer->tokens_host + i * 3 * rows;

        trainer->shape_of[i] = cp_batches_choose(&text, options, 0, i);
        if (cp_batches_sample(&text, options, &trainer->shapes[0].config, 0, i,
                              tokens, tokens + rows, tokens + 2 * rows,
                              &trainer->packings[i]) != 0) {
            return -1;
        }
    }
    DEVICE_CALL(dev, cuMemcpyHtoD, device_address(trainer->tokens),
                trainer->tokens_host,
                (size_t)(options->counts[0] * 3 * rows) * sizeof(int));
    return DEVICE_CALL(dev, cuMemcpyHtoD, device_address(trainer->offsets),
                       trainer->offsets_host,
                       (size_t)(options->counts[0] *
                                config_offsets(&trainer->model.config)) *
                           sizeof(int));
}

static int make_step(struct rank *r)
{
    struct trainer trainer;
    int status = -1;

    if (trainer_init(&trainer, &r->options, MODE_EAGER, &r->dev) == 0 &&
        give_text(&trainer) == 0 &&
        schedule_step(&trainer, r->options.counts[0]) == 0 &&
        device_synchronize(&r->dev, trainer.streams[0]) == 0) {
        r->n = trainer.model.n;
        r->g = malloc(r->n * sizeof(*r->g));
        status = DEVICE_CALL(&r->dev, cuMemcpyDtoH, r->g,
                             device_address(trainer.model.g),
                             r->n * sizeof(*r->g));
    }
    (void)r->dev.drv.cuCtxSynchronize();
    trainer_free(&trainer);
    return status;
}

static int run_alone(struct rank *r, bool step)
{
    char error[SOFT_ERROR];

    return step ? make_step(r)
                : train(&r->options, &r->dev, &text, MODE_EAGER, NULL,
                        &r->result, error, sizeof(error));
}

/* One step where a sequence has a shape, else a whole run. */
static void *run_rank(void *at)
{
    struct rank *r = at;
    const bool step = r->options.n_cp > 0;

    r->status = device_open(&r->dev, driver, r->ranks.rank);
    if (r->status == 0 && r->ranks.n == 1) {
        r->status = run_alone(r, step);
    } else if (r->status == 0) {
        r->status = ranks_open(&r->ranks, &r->dev, &nccl, r->id);
        if (r->status == 0) {
            r->status = ranks_split(&r->ranks, r->options.cp,
                                    r->options.n_cp);
        }
        if (r->status == 0) {
            r->status = run_alone(r, step);
        }
        ranks_close(&r->ranks);
    }
    device_close(&r->dev);
    return NULL;
}

/* n ranks of the same options, each of which begins in `start`; 0 when all have
 * ended well. */
static int run_in(void *(*start)(void *), struct rank *all, int n,
                  const struct options *options)
{
    struct host_barrier barrier;
    ncclUniqueId id;
    int status = nccl.ncclGetUniqueId(&id);

    host_barrier_init(&barrier, n);
    for (int i = 0; i < n; i++) {
        all[i].options = *options;
        all[i].id = &id;
        all[i].ranks = (struct ranks){
            .rank = i,
            .n = n,
            .barrier = &barrier,
            .watch = { .lost = host_barrier_lost,
                       .tell = host_barrier_break,
                       .user = &barrier },
        };
        all[i].options.ranks = n > 1 ? &all[i].ranks : NULL;
        pthread_create(&all[i].thread, NULL, start, &all[i]);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        status |= all[i].status;
    }
    host_barrier_destroy(&barrier);
    return status;
}

static int run(struct rank *all, int n, const struct options *options)
{
    return run_in(run_rank, all, n, options);
}

/* The largest difference of two gradients, over the largest element. */
static double difference(const struct rank *a, const struct rank *b)
{
    double worst = 0.0, most = 0.0;

    if (a->n != b->n || a->g == NULL || b->g == NULL) {
        return INFINITY;
    }
    for (size_t i = 0; i < a->n; i++) {
        const double x = (double)a->g[i], y = (double)b->g[i];

        worst = fmax(worst, fabs(x - y));
        worst = x == x && y == y ? worst : INFINITY;
        most = fmax(most, fabs(x));
    }
    return most > 0.0 ? worst / most : INFINITY;
}

static void forget(struct rank *all, int n)
{
    for (int i = 0; i < n; i++) {
        free(all[i].g);
        result_free(&all[i].result);
    }
}

/* A sequence of 12 tokens that n ranks share, and one that has all of it. */
static void check_shared(enum model_kind model, int n, bool ring,
                         const char *what)
{
    struct rank one[1] = { 0 }, all[MOST] = { 0 };
    struct options options = soft_options;

    options.config.model = model;
    options.config.experts = 3;
    options.config.top_k = 2;
    options.config.state = 2;
    options.config.layers = model == MODEL_HYBRID ? 4 : 1;
    options.config.documents = options.config.batch = 2;
    options.counts[0] = 1;
    options.cp_ring = ring;
    options.n_cp = 1;
    options.cp[0] = options.cp_force = 1;
    options.config.seq = 12;
    is_int(run(one, 1, &options), 0, "%s: one rank makes a step", what);
    options.config.seq = 12 / n;
    options.config.cp = options.cp[0] = options.cp_force = n;
    is_int(run(all, n, &options), 0, "%s: %d ranks make a step", what, n);
    for (int i = 0; i < n; i++) {
        const double apart = difference(&one[0], &all[i]);

        ok(apart < 1e-5,
           "%s: rank %d of %d has the gradients that one has (%.1g)", what, i,
           n, apart);
    }
    forget(one, 1);
    forget(all, n);
}

/* Groups of one rank: all have samples of their own. */
static void check_parallel(void)
{
    struct rank one[1] = { 0 }, all[MOST] = { 0 };
    struct options options = soft_options;
    double apart;

    options.config.documents = 1;
    options.n_cp = 1;
    options.cp[0] = options.cp_force = 1;
    options.counts[0] = 6;
    is_int(run(one, 1, &options), 0, "six microbatches of one rank");
    options.counts[0] = 2;
    is_int(run(all, 3, &options), 0, "two microbatches of three ranks");
    apart = difference(&one[0], &all[2]);
    ok(apart < 1e-5, "gradients are the mean over all ranks (%.1g)", apart);
    forget(one, 1);
    forget(all, 3);
}

/* The second of two ranks begins with other weights. */
static void *other_seed(void *at)
{
    struct rank *r = at;

    r->options.config.seed += (uint64_t)r->ranks.rank;
    return run_rank(r);
}

static void check_weights(void)
{
    struct rank same[2] = { 0 }, apart[2] = { 0 };

    is_int(run(same, 2, &soft_options), 0, "two ranks train");
    ok(!same[0].result.ranks_differ && !same[1].result.ranks_differ,
       "and end with the same weights");
    is_int(run_in(other_seed, apart, 2, &soft_options), 0,
           "two ranks train, each from a seed of its own");
    ok(apart[0].result.ranks_differ && apart[1].result.ranks_differ,
       "and are told that their weights differ");
    forget(same, 2);
    forget(apart, 2);
}

int main(void)
{
    char path[4096], error[512];

    for (size_t i = 0; i + 1 < sizeof(letters); i++) {
        letters[i] = (char)('a' + (i * i + i / 7) % 26);
    }
    setenv("SOFTCUDA_DEVICES", "3", 1);
    setenv("SOFTCUDA_PROCESSES", "1", 1);
    setenv("GRAPHHOOKS_LOG", "off", 0);
    find_companion(FIND_SOFTCUDA, driver, sizeof(driver));
    find_companion(FIND_SOFTNCCL, path, sizeof(path));
    if (soft_find() != 0 ||
        nccl_load(path, &nccl, error, sizeof(error)) != 0) {
        ok(false, "the software device and its NCCL load");
        return done_testing();
    }
    check_parallel();
    check_shared(MODEL_GPT, 2, false, "gpt, all-gather");
    check_shared(MODEL_GPT, 3, true, "gpt, ring");
    check_shared(MODEL_MLA, 2, true, "mla, ring");
    check_shared(MODEL_MLA, 3, false, "mla, all-gather");
    check_shared(MODEL_MOE, 3, false, "moe, all-gather");
    check_shared(MODEL_MAMBA, 3, false, "mamba");
    check_shared(MODEL_HYBRID, 2, true, "hybrid, ring");
    check_weights();
    return done_testing();
}
