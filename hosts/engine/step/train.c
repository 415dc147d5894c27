/*
 * train.c - one run: makes a trainer, runs its steps, measures the times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/train.h"

#include "step/bare.h"
#include "step/exchanger.h"
#include "step/host.h"
#include "step/landing.h"
#include "step/overlap.h"
#include "step/pipeline.h"
#include "step/cp_batches.h"
#include "step/schedule.h"
#include "step/stasher.h"
#include "step/step_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- a step ------------------------------------------------------------- */

static double milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Clears the rest behind a microbatch of a shorter shape, because it is copied
 * to the device too. */
static void clear_rest(const struct trainer *trainer, int *tokens, size_t own)
{
    const size_t rows = (size_t)config_rows(&trainer->model.config);

    for (int i = 0; i < trainer_columns(trainer); i++, tokens += rows) {
        memset(tokens + own, 0, (rows - own) * sizeof(*tokens));
    }
}

/* Draws the rank's own part of a microbatch.  Returns 0, or -1 when memory ran
 * out. */
static int sample(struct trainer *trainer, const struct text *text, int step,
                  int microbatch)
{
    const struct options *options = trainer->options;
    const size_t rows = (size_t)config_rows(&trainer->model.config);
    const int own = microbatch * ranks_count(options->ranks) +
                    ranks_number(options->ranks);
    int *tokens = trainer->tokens_host + (size_t)microbatch * rows *
                                             (size_t)trainer_columns(trainer);
    const struct config *config;

    trainer->shape_of[microbatch] =
        options->n_cp > 0 ? cp_batches_choose(text, options, step, microbatch)
                          : microbatch % options_shapes(options);
    config = &model_of(trainer, microbatch)->config;
    clear_rest(trainer, tokens, (size_t)config_rows(config));
    if (options->n_cp > 0) {
        return cp_batches_sample(text, options, config, step, microbatch,
                                 tokens, tokens + rows, tokens + 2 * rows,
                                 &trainer->packings[microbatch]);
    }
    if (config->documents > 0) {
        text_pack(text, config, step, own, tokens, tokens + rows,
                  &trainer->packings[microbatch]);
    } else {
        text_sample(text, config, step, own, tokens, tokens + rows);
    }
    return 0;
}

/* Counts the tokens that have a successor to learn. */
static uint64_t count_tokens(const struct trainer *trainer, int count)
{
    const int rows = config_rows(&trainer->model.config);
    const int columns = trainer_columns(trainer);
    uint64_t n = 0;

    for (int i = 0; i < count; i++) {
        const int *targets =
            trainer->tokens_host + (size_t)(i * columns + 1) * (size_t)rows;

        for (int t = 0; t < config_rows(&model_of(trainer, i)->config); t++) {
            n += targets[t] >= 0;
        }
    }
    return n;
}

static int sample_step(struct trainer *trainer, const struct text *text,
                       int step, int count)
{
    for (int i = 0; i < count; i++) {
        if (sample(trainer, text, step, i) != 0) {
            return device_check(trainer->dev, "malloc",
                                CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    return 0;
}

/* The mean over microbatches, added in their order. */
static double mean_loss(const struct trainer *trainer, int count)
{
    double sum = 0.0;

    for (int i = 0; i < count; i++) {
        sum += (double)trainer->losses_host[i];
    }
    return sum / count;
}

/* Makes a mean that of n values, with one more. */
static void add_to_mean(double *mean, double value, int n)
{
    *mean += (value - *mean) / n;
}

/* What ranks tell each other after a step. */
struct step_news {
    double loss;
    uint64_t tokens;
    uint64_t stop; /* no rank goes on after this step */
};

/* The rank that has the losses of text `number`: of the stage with the head. */
static int losses_from(const struct trainer *trainer, int number)
{
    return pipeline_head_stage(trainer->options) *
               ranks_count(trainer->options->ranks) +
           number;
}

/* Makes the loss the mean of all ranks, added in their order.  Returns 0, or
 * -1: dev->error. */
static int share_step(struct trainer *trainer, struct result *result, int step)
{
    struct ranks *ranks = trainer->options->ranks;
    const struct step_news mine = { result->loss[step], result->tokens[step],
                                    result->told };
    struct step_news all[RANKS_MOST];
    double sum = 0.0;

    if (ranks == NULL) {
        return 0;
    }
    if (ranks_exchange(ranks, &mine, sizeof(mine), all) != 0) {
        return -1;
    }
    result->tokens[step] = 0;
    for (int i = 0; i < ranks->n; i++) {
        result->stopped = result->stopped || all[i].stop != 0;
    }
    for (int i = 0; i < ranks_count(ranks); i++) {
        const struct step_news *news = &all[losses_from(trainer, i)];

        sum += news->loss;
        result->tokens[step] += news->tokens;
    }
    result->loss[step] = sum / ranks_count(ranks);
    return 0;
}

/* The stages of the ranks that train on the first text. */
static int gather_stages(struct trainer *trainer, struct stage_time *stages)
{
    struct ranks *ranks = trainer->options->ranks;
    struct stage_time mine, all[RANKS_MOST];

    if (pipeline_times(trainer, &mine) != 0 ||
        ranks_exchange(ranks, &mine, sizeof(mine), all) != 0) {
        return -1;
    }
    for (int i = 0; i < ranks_pp(ranks); i++) {
        stages[i] = all[i * ranks_count(ranks)];
    }
    return 0;
}

/* Notes how long stages were idle in a step whose passes were timed.  Returns
 * 0, or -1: dev->error. */
static int note_idle(struct trainer *trainer, struct result *result, int count)
{
    const int n = options_pp(trainer->options);
    struct stage_time stages[RANKS_MOST];
    struct gh_pipeline_times times;
    double room[RANKS_MOST], longest = 0;

    if (!trainer->times_passes) {
        return 0;
    }
    if (gather_stages(trainer, stages) != 0) {
        return -1;
    }
    times = pass_times_clock(stages, n, room);
    result->idle[result->n_timed] = pass_times_idle(stages, n);
    result->idle_predicted[result->n_timed] =
        pipeline_idle_of(trainer->options, count, &times);
    for (int i = 0; i < n; i++) {
        longest = stages[i].step > longest ? stages[i].step : longest;
    }
    result->n_timed++;
    for (int i = 0; i < n; i++) {
        add_to_mean(&result->stage_idle[i], 1 - stages[i].busy / longest,
                    result->n_timed);
    }
    for (int k = 0; k < GH_ACTIONS; k++) {
        add_to_mean(&result->pass_ms[k], times.pass[k], result->n_timed);
    }
    return 0;
}

/* Whether the step's passes are timed: one of the last that have the most
 * microbatches. */
static bool times_passes(const struct options *options, int step)
{
    const int most = options_max_count(options);
    int later = 0;

    if (options_pp(options) == 1 || options_count(options, step) != most) {
        return false;
    }
    for (int i = step + 1; i < options->steps && later < options->time_passes;
         i++) {
        later += options_count(options, i) == most;
    }
    return later < options->time_passes;
}

/* Finds out whether all ranks have the same weights, and whether one of them
 * was told to stop.  Returns 0, or -1: dev->error. */
static int share_end(struct trainer *trainer, struct result *result,
                     uint64_t experts)
{
    struct ranks *ranks = trainer->options->ranks;
    const int ep = config_ep(&trainer->options->config);
    const uint64_t mine[5] = { result->weights_hash, experts, result->told,
                               (uint64_t)result->settled, result->grown_bytes };
    uint64_t all[RANKS_MOST][5];

    result->ranks = ranks == NULL ? 1 : ranks->n;
    if (ranks == NULL) {
        return 0;
    }
    if (ranks_exchange(ranks, mine, sizeof(mine), all) != 0) {
        return -1;
    }
    for (int i = 0; i < ranks->n; i++) {
        result->ranks_differ = result->ranks_differ ||
                               all[i][0] != all[0][0] ||
                               all[i][1] != all[i % ep][1];
        result->stopped = result->stopped || all[i][2] != 0;
        if ((int)all[i][3] > result->settled) {
            result->settled = (int)all[i][3];
        }
        if (all[i][4] > result->grown_bytes) {
            result->grown_bytes = all[i][4];
        }
    }
    /* The hash is over all experts, whichever rank computes it. */
    for (int i = 0; ep > 1 && i < ep; i++) {
        result->weights_hash =
            (result->weights_hash ^ all[i][1]) * 0x100000001b3u;
    }
    return 0;
}

static int issue(struct trainer *trainer, struct step_graphs *graphs, int count)
{
    struct device *dev = trainer->dev;
    const CUstream stream = trainer->streams[0];
    const size_t rows = (size_t)config_rows(&trainer->model.config);
    const size_t n = (size_t)count;
    int result;

    DEVICE_CALL(dev, cuMemcpyHtoDAsync, device_address(trainer->tokens),
                trainer->tokens_host,
                n * (size_t)trainer_columns(trainer) * rows * sizeof(int),
                stream);
    if (trainer->offsets != NULL) {
        DEVICE_CALL(dev, cuMemcpyHtoDAsync, device_address(trainer->offsets),
                    trainer->offsets_host,
                    n * (size_t)config_offsets(&trainer->model.config) *
                        sizeof(int),
                    stream);
    }
    result = graphs != NULL ? step_graphs_launch(graphs, count)
                            : schedule_step(trainer, count);
    if (trainer->model.heads) {
        DEVICE_CALL(dev, cuMemcpyDtoHAsync, trainer->losses_host,
                    device_address(trainer->losses), n * sizeof(float), stream);
    }
    return result == 0 && dev->code == CUDA_SUCCESS ? 0 : -1;
}

static int run_step(struct trainer *trainer, struct step_graphs *graphs,
                    const struct text *text, int step, struct result *result)
{
    const int count = options_count(trainer->options, step);
    double start, issued;

    if (sample_step(trainer, text, step, count) != 0) {
        return -1;
    }
    trainer->times_passes = times_passes(trainer->options, step);
    start = milliseconds();
    if (issue(trainer, graphs, count) != 0) {
        return -1;
    }
    issued = milliseconds();
    if (schedule_wait(trainer) != 0) {
        return -1;
    }
    result->step_ms[step] = milliseconds() - start;
    result->host_ms[step] = issued - start;
    result->loss[step] = trainer->model.heads ? mean_loss(trainer, count) : 0;
    result->tokens[step] = count_tokens(trainer, count);
    for (int i = 0; i < count; i++) {
        result->shaped[trainer->shape_of[i]]++;
    }
    return share_step(trainer, result, step) == 0
               ? note_idle(trainer, result, count)
               : -1;
}

/* ---- a run -------------------------------------------------------------- */

static int result_init(struct result *result, const struct options *options,
                       enum mode mode)
{
    const size_t n = (size_t)options->steps;

    memset(result, 0, sizeof(*result));
    result->mode = mode;
    result->loss = calloc(n, sizeof(*result->loss));
    result->step_ms = calloc(n, sizeof(*result->step_ms));
    result->host_ms = calloc(n, sizeof(*result->host_ms));
    result->recordings = calloc(n, sizeof(*result->recordings));
    result->tokens = calloc(n, sizeof(*result->tokens));
    result->used_bytes = calloc(n, sizeof(*result->used_bytes));
    result->idle = calloc(n, sizeof(*result->idle));
    result->idle_predicted = calloc(n, sizeof(*result->idle_predicted));
    return result->loss == NULL || result->step_ms == NULL ||
                   result->host_ms == NULL || result->recordings == NULL ||
                   result->tokens == NULL || result->used_bytes == NULL ||
                   result->idle == NULL || result->idle_predicted == NULL
               ? -1
               : 0;
}

void result_free(struct result *result)
{
    free(result->loss);
    free(result->step_ms);
    free(result->host_ms);
    free(result->recordings);
    free(result->tokens);
    free(result->used_bytes);
    free(result->idle);
    free(result->idle_predicted);
    free(result->layer_bytes);
    memset(result, 0, sizeof(*result));
}

static size_t free_memory(struct device *dev)
{
    size_t free_bytes = 0, total = 0;

    (void)DEVICE_CALL(dev, cuMemGetInfo, &free_bytes, &total);
    return free_bytes;
}

/* Takes this run's exchanges out of the ranks' own counters. */
static void note_exchanges(const struct exchange *exchange,
                           const struct exchange *before,
                           struct result *result)
{
    result->exchanges = exchange->calls - before->calls;
    result->exchanges_captured = exchange->captured - before->captured;
    result->exchanged_bytes = exchange->bytes - before->bytes;
}

/* Notes the memory used since the run began, at the end of a step.  Other
 * programs on the device count too. */
static void note_memory(struct device *dev, size_t before, int step,
                        struct result *result)
{
    const size_t now = free_memory(dev);

    result->used_bytes[step] = before > now ? before - now : 0;
    if (result->used_bytes[step] > result->peak_bytes) {
        result->peak_bytes = result->used_bytes[step];
    }
}

/* Finds the last step that recorded, and how much the memory grew after it. */
static void note_growth(struct result *result)
{
    uint64_t first;

    for (int i = 0; i < result->steps; i++) {
        if (result->recordings[i] != (i > 0 ? result->recordings[i - 1] : 0)) {
            result->settled = i + 1;
        }
    }
    if (result->settled == 0) {
        return;
    }
    first = result->used_bytes[result->settled - 1];
    for (int i = result->settled; i < result->steps; i++) {
        if (result->used_bytes[i] > first + result->grown_bytes) {
            result->grown_bytes = result->used_bytes[i] - first;
        }
    }
}

static void note_slots(const struct trainer *trainer, struct result *result)
{
    result->n_chunks = trainer->n_chunks;
    result->landing_bytes = landing_bytes(trainer);
    for (int i = 0; i < trainer->n_chunks; i++) {
        result->slots[i] = trainer->host->slots[i];
        result->slots_used[i] = host_slots_used(trainer->host, i);
        result->slot_bytes[i] = host_slot_bytes(trainer->host, i);
        result->landing_slot_bytes[i] = landing_slot_bytes(trainer, i);
    }
}

/* Notes what a slot has for each layer.  Returns 0, or -1: dev->error. */
static int note_layers(const struct trainer *trainer, struct result *result)
{
    struct model model = trainer->model;
    struct set_bytes bytes;

    model.stash = trainer->chunks[0].model.stash;
    model.folds_embedding = model.folds_head =
        trainer->chunks[0].model.folds_embedding;
    if (set_measure(&model, &bytes) != 0) {
        return device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    result->n_layers = model.config.layers;
    result->embedding_bytes = bytes.embedding;
    result->head_bytes = bytes.head;
    result->rest_bytes = bytes.rest;
    result->layer_bytes =
        calloc((size_t)result->n_layers, sizeof(*result->layer_bytes));
    for (int i = 0; result->layer_bytes != NULL && i < result->n_layers; i++) {
        result->layer_bytes[i] = bytes.layers[i];
    }
    free(bytes.layers);
    return result->layer_bytes != NULL
               ? 0
               : device_check(trainer->dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
}

static int run_steps(struct trainer *trainer, struct step_graphs *graphs,
                     const struct text *text, train_progress_fn *progress,
                     size_t before, struct result *result)
{
    const struct options *options = trainer->options;
    const struct exchange *exchange = ranks_ep(options->ranks);
    const struct exchange first =
        exchange != NULL ? *exchange : (struct exchange){ 0 };
    uint64_t experts = 0;

    /* One rank may wait, while it allocates memory, for what another rank
     * records. */
    if ((options->ranks != NULL && ranks_barrier(options->ranks) != 0) ||
        (trainer->host != NULL && note_layers(trainer, result) != 0)) {
        return -1;
    }
    for (int step = 0; step < options->steps && !result->stopped; step++) {
        if (run_step(trainer, graphs, text, step, result) != 0) {
            return -1;
        }
        result->steps = step + 1;
        note_memory(trainer->dev, before, step, result);
        if (exchange != NULL) {
            note_exchanges(exchange, &first, result);
        }
        if (trainer->host != NULL) {
            if (host_stats(trainer->host, &result->stats) != 0 ||
                host_offload_stats(trainer->host, &result->offload) != 0 ||
                overlap_stats(trainer->host, &result->overlap) != 0) {
                return -1;
            }
            result->reason_name = host_reason_names(trainer->host);
            host_reasons(trainer->host, result->eager, MAX_REASONS);
            host_memory_stats(trainer->host, &result->memory);
            note_slots(trainer, result);
            result->has_stats = true;
            result->wgrad_replays = host_wgrad_replays(trainer->host);
            result->recordings[step] = result->stats.recordings;
        }
        if (progress != NULL &&
            !progress(options, result->mode, step, result->loss[step],
                      result->step_ms[step])) {
            result->told = true;
            result->stopped = result->stopped || options->ranks == NULL;
        }
    }
    if (model_hash(&trainer->model, ranks_sum_line, options->ranks,
                   &result->weights_hash, &experts) != 0) {
        return -1;
    }
    note_growth(result);
    return share_end(trainer, result, experts);
}

/* Writes the library's sentence if it has one, or else the device's. */
static void explain(const struct trainer *trainer, char *error,
                    size_t error_bytes)
{
    const char *said = trainer->host == NULL ? "" : host_error(trainer->host);

    snprintf(error, error_bytes, "%s",
             said[0] != '\0' ? said : trainer->dev->error);
}

int train_check(const struct options *options, struct device *dev,
                enum mode mode, bool *bad_option, char *error, size_t error_bytes)
{
    struct trainer trainer;
    int status = -1;

    error[0] = '\0';
    if (trainer_init(&trainer, options, mode, dev) != 0) {
        explain(&trainer, error, error_bytes);
    } else {
        landing_fit(&trainer);
        status = host_check(&trainer, mode, bad_option, error, error_bytes);
    }
    (void)dev->drv.cuCtxSynchronize();
    trainer_free(&trainer);
    return status;
}

int train(const struct options *options, struct device *dev,
          const struct text *text, enum mode mode, train_progress_fn *progress,
          struct result *result, char *error, size_t error_bytes)
{
    struct trainer trainer;
    struct step_graphs graphs = { 0 };
    struct exchanger exchanger = { 0 };
    struct stasher stasher = { 0 };
    int status = -1;
    size_t before;

    error[0] = '\0';
    device_forgive(dev);
    before = free_memory(dev);
    if (result_init(result, options, mode) != 0) {
        snprintf(error, error_bytes, "out of memory");
        return -1;
    }
    if (trainer_init(&trainer, options, mode, dev) != 0) {
        explain(&trainer, error, error_bytes);
        goto out;
    }
    if (pipeline_open(&trainer) != 0) {
        explain(&trainer, error, error_bytes);
        goto out;
    }
    if (exchanger_open(&exchanger, &trainer, mode, error, error_bytes) != 0) {
        goto out;
    }
    if (stasher_open(&stasher, &trainer, mode, error, error_bytes) != 0) {
        goto out;
    }
    if (mode_is_graph(mode)) {
        landing_fit(&trainer);
        trainer.host = host_open(&trainer, mode, error, error_bytes);
        if (trainer.host == NULL) {
            goto out;
        }
        if (landing_open(&trainer) != 0) {
            explain(&trainer, error, error_bytes);
            goto out;
        }
    }
    if (mode == MODE_BARE) {
        trainer.bare = bare_open(&trainer);
        if (trainer.bare == NULL) {
            explain(&trainer, error, error_bytes);
            goto out;
        }
    }
    if (mode == MODE_STEP && step_graphs_init(&graphs, &trainer) != 0) {
        explain(&trainer, error, error_bytes);
        goto out;
    }

    status = run_steps(&trainer, mode == MODE_STEP ? &graphs : NULL, text,
                       progress, before, result);
    if (status != 0) {
        explain(&trainer, error, error_bytes);
        pipeline_say_where(&trainer, error, error_bytes);
    }
    exchanger_stats(&exchanger, &result->exchange);
    stasher_stats(&stasher, &result->stash);

out:
    if (status != 0 && options->ranks != NULL) {
        host_give_up(trainer.host, error);
        ranks_abort(options->ranks, error);
        exchanger_let_go(&exchanger);
    }
    (void)dev->drv.cuCtxSynchronize(); /* no kernel may still use what is
                                          freed */
    host_close(trainer.host);
    step_graphs_free(&graphs);
    bare_close(trainer.bare);
    exchanger_close(&exchanger);
    landing_close(&trainer);
    pipeline_close(&trainer);
    trainer_free(&trainer);
    stasher_close(&stasher);
    return status;
}
