/*
 * dispatch.c - sends tokens to the experts and back, forward and backward.
 *
 * If one rank has all experts, a gather is enough.  If ranks divide them, each
 * rank puts its rows in the experts' order, which is also the order of the
 * experts' ranks, and sends every rank its run.  Received rows are ordered by
 * the rank that sent them and then by expert, and are worked on where they
 * are.
 *
 * Dropless ranks tell each other how many rows go where.  The host has to know
 * that before it sends, so it waits once in each layer.  With drop_and_pad all
 * experts get equally many rows, and nobody waits.  With sync_free nobody waits
 * either: all exchange room for all rows, and the device finds those that there
 * are in the run of each rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/dispatch.h"

#include <string.h>

enum way {
    TO_EXPERTS,
    BACK
};

/* ---- counts -------------------------------------------------------------- */

/* Whether the counts are valid.  Every rank sends each of its rows once.  Other
 * counts mean that something has failed on that rank, so they must not be
 * used. */
static bool counts_hold(const struct config *config, const int *counts,
                        size_t ranks)
{
    for (size_t i = 0; i < ranks; i++) {
        long rows = 0;

        for (int e = 0; e < config->experts; e++) {
            const int n = *counts++;

            if (n < 0 || n > config_slots(config)) {
                return false;
            }
            rows += n;
        }
        if (rows != config_slots(config)) {
            return false;
        }
    }
    return true;
}

/* Reads the counts.  Waits for the stream, but not for ranks that never
 * come. */
static void read_counts(const struct work *work, const int *counts,
                        size_t ranks, int *counts_host)
{
    const struct config *config = &work->model->config;
    const size_t bytes = ranks * (size_t)config->experts * sizeof(int);
    struct device *dev = work->queue.dev;

    DEVICE_CALL(dev, cuMemcpyDtoHAsync, counts_host, device_address(counts),
                bytes, work->queue.stream);
    if (work->ep == NULL) {
        (void)device_synchronize(dev, work->queue.stream);
    } else {
        (void)exchange_synchronize(work->ep, work->queue.stream);
    }

    if (dev->code == CUDA_SUCCESS && !counts_hold(config, counts_host, ranks)) {
        device_fail(dev, "a rank has sent counts of rows that are not those "
                         "of its tokens");
    }
    if (dev->code != CUDA_SUCCESS) {
        memset(counts_host, 0, bytes);
    }
}

static void find_counts(const struct work *work,
                        const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const size_t n = (size_t)config->experts;

    if (!config_counts_on_host(config)) {
        return;
    }
    if (work->ep == NULL) {
        read_counts(work, buffers->counts, 1, buffers->counts_host);
        return;
    }
    comm_gather_bytes(work->ep->comm, buffers->counts, buffers->all_counts,
                      n * sizeof(int), work->queue.stream);
    read_counts(work, buffers->all_counts, (size_t)config_ep(config),
                buffers->counts_host);
}

int dispatch_rows(const struct work *work, const struct moe_buffers *buffers,
                  int rank, int expert)
{
    const struct config *config = &work->model->config;

    return config->drop_and_pad
               ? config_capacity(config)
               : buffers->counts_host[rank * config->experts + expert];
}

int dispatch_all_rows(const struct work *work,
                      const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int first = config_first_expert(config);
    int rows = 0;

    if (work->ep == NULL || config_sync_free(config)) {
        return config_room(config);
    }
    for (int i = 0; i < config_ep(config); i++) {
        for (int e = 0; e < config_own_experts(config); e++) {
            rows += dispatch_rows(work, buffers, i, first + e);
        }
    }
    return rows;
}

void dispatch_clear(const struct work *work, const struct moe_buffers *buffers,
                    enum saved_module module, float *x, int cols)
{
    const struct model *model = work->model;
    const size_t rows = (size_t)dispatch_all_rows(work, buffers);
    const size_t room = (size_t)config_room(&model->config);

    if ((model->offload & 1u << module) != 0 && rows < room) {
        DEVICE_CALL(work->queue.dev, cuMemsetD32Async,
                    device_address(x + rows * (size_t)cols), 0,
                    (room - rows) * (size_t)cols, work->queue.stream);
    }
}

/* ---- rows ---------------------------------------------------------------- */

/* Makes y of rows of x by a map.  `share` choices of one row use the same row
 * of x. */
static void gather(const struct work *work, const float *x, int x_rows,
                   const int *map, int share, float *y, int rows)
{
    const int cols = work->model->config.hidden;

    LAUNCH(&work->queue, moe_gather, moe_gather_args,
           blocks_of((size_t)rows * (size_t)cols, moe_gather_threads), .x = x,
           .map = map, .y = y, .x_rows = x_rows, .rows = rows, .cols = cols,
           .share = share);
}

/* Exchanges rows between all ranks: as many as rank i has for the experts of
 * rank j.  Counts are in floats. */
static void exchange(const struct work *work, const struct moe_buffers *buffers,
                     enum way way, const float *send, float *recv)
{
    const struct config *config = &work->model->config;
    const int n = config_ep(config), own = config_own_experts(config);
    size_t counts[EXCHANGE_RANKS * EXCHANGE_RANKS];

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            size_t rows =
                config_sync_free(config) ? (size_t)config_slots(config) : 0;

            for (int e = j * own;
                 e < (j + 1) * own && !config_sync_free(config); e++) {
                rows += (size_t)dispatch_rows(work, buffers, i, e);
            }
            counts[way == TO_EXPERTS ? i * n + j : j * n + i] =
                rows * (size_t)config->hidden;
        }
    }
    exchange_all_to_all(work->ep, send, recv, counts, work->queue.stream);
}

/* Sends rows, one for each choice, to their experts, wherever these are. */
static void send_rows(const struct work *work,
                      const struct moe_buffers *buffers, const float *x,
                      int x_rows, int share, float *y)
{
    const struct config *config = &work->model->config;
    const int slots = config_slots(config);

    if (work->ep == NULL) {
        gather(work, x, x_rows, buffers->source, share, y, slots);
        return;
    }
    if (config_sync_free(config)) {
        gather(work, x, x_rows, buffers->block_source, share,
               work->set->exchange.out, config_room(config));
    } else {
        gather(work, x, x_rows, buffers->source, share, work->set->exchange.out,
               slots);
    }
    exchange(work, buffers, TO_EXPERTS, work->set->exchange.out, y);
}

/* Brings the rows of this rank's tokens back, in the experts' order. */
static const float *bring_back(const struct work *work,
                               const struct moe_buffers *buffers,
                               const float *rows)
{
    if (work->ep == NULL) {
        return rows;
    }
    exchange(work, buffers, BACK, rows, work->set->exchange.back);
    return work->set->exchange.back;
}

/* The rows that come back, and which of them each choice has. */
static int rows_back(const struct config *config)
{
    return config_sync_free(config) ? config_room(config)
                                    : config_slots(config);
}

static const int *slot_of(const struct config *config,
                          const struct moe_buffers *buffers)
{
    return config_sync_free(config) ? buffers->block_slot : buffers->slot;
}

/* Finds the rows of each rank, without the host. */
static void find_blocks(const struct work *work,
                        const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int ranks = config_ep(config), own = config_own_experts(config);

    if (!config_sync_free(config)) {
        return;
    }
    LAUNCH(&work->queue, moe_blocks, moe_blocks_args,
           blocks_of((size_t)config_room(config), moe_blocks_threads),
           .choice = buffers->choice, .first = buffers->first,
           .slot = buffers->slot, .source = buffers->source,
           .block_source = buffers->block_source,
           .block_slot = buffers->block_slot, .n = config_slots(config),
           .ranks = ranks, .own = own);
    comm_gather_bytes(work->ep->comm, buffers->counts, buffers->all_counts,
                      (size_t)config->experts * sizeof(int),
                      work->queue.stream);
    LAUNCH(&work->queue, moe_received, moe_received_args, 1,
           .all_counts = buffers->all_counts, .counts = buffers->rank_counts,
           .first = buffers->rank_first, .rows = buffers->rank_rows,
           .ranks = ranks, .experts = config->experts, .own = own,
           .own_first = config_first_expert(config));
}

/* ---- both ways ----------------------------------------------------------- */

void dispatch_forward(const struct work *work,
                      const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;

    find_counts(work, buffers);
    find_blocks(work, buffers);
    if (work->queue.dev->code == CUDA_SUCCESS) {
        send_rows(work, buffers, buffers->norm, config_rows(config),
                  config->top_k, buffers->dispatched);
        dispatch_clear(work, buffers, SAVED_EXPERT_FC1, buffers->dispatched,
                       config->hidden);
    }
}

void combine_forward(const struct work *work, const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;

    gather(work, bring_back(work, buffers, buffers->expert_out),
           rows_back(config), slot_of(config, buffers), 1, buffers->combined,
           config_rows(config) * config->top_k);
}

void combine_backward(const struct work *work,
                      const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;

    send_rows(work, buffers, buffers->d_combined,
              config_rows(config) * config->top_k, 1, buffers->d_expert_out);
}

void dispatch_backward(const struct work *work,
                       const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);
    const size_t n = (size_t)rows * (size_t)config->hidden;

    LAUNCH(&work->queue, moe_gather_sum, moe_gather_sum_args,
           blocks_of(n, moe_gather_sum_threads),
           .x = bring_back(work, buffers, buffers->d_dispatched),
           .map = slot_of(config, buffers), .y = buffers->d_norm,
           .x_rows = rows_back(config), .rows = rows, .cols = config->hidden,
           .share = config->top_k);
}
