/*
 * overlap.c - see overlap.h.
 *
 * The library says which node to issue, and on which stream.  passes.c runs
 * the node's segments as in any other mode.  Embedding and head are not nodes:
 * they come before and after a pair, on its compute stream.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/overlap.h"

#include "step/embedding_head.h"
#include "step/passes.h"

#include <stdio.h>
#include <string.h>

#define NONE (-1)

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *err)
{
    struct host *host = user;

    if (passes_node(host, node) == 0) {
        return GH_OK;
    }
    snprintf(err->text, sizeof(err->text), "%.250s",
             host->error[0] != '\0' ? host->error : host->trainer->dev->error);
    return GH_ERR_DEVICE;
}

/* Makes each number the largest of all ranks, so that all choose the same
 * order.  It is used where the library cannot ask the ranks itself, because the
 * ranks of its banks are those that share sequences. */
static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *err)
{
    enum {
        AT_ONCE = RANKS_EXCHANGE / sizeof(double)
    };
    struct host *host = user;
    struct ranks *ranks = host->trainer->options->ranks;
    double mine[AT_ONCE], all[RANKS_MOST * AT_ONCE];

    for (uint32_t first = 0; first < n; first += AT_ONCE) {
        const uint32_t some = n - first < AT_ONCE ? n - first : AT_ONCE;

        memset(mine, 0, sizeof(mine));
        memcpy(mine, numbers + first, some * sizeof(*numbers));
        if (ranks_exchange(ranks, mine, sizeof(mine), all) != 0) {
            snprintf(err->text, sizeof(err->text), "%.200s",
                     host->trainer->dev->error);
            return GH_ERR_RANKS;
        }
        for (uint32_t i = 0; i < (uint32_t)ranks->n * AT_ONCE; i++) {
            if (i % AT_ONCE < some && all[i] > numbers[first + i % AT_ONCE]) {
                numbers[first + i % AT_ONCE] = all[i];
            }
        }
    }
    return GH_OK;
}

static int read_stats(struct host *host, gh_overlap_stats *stats)
{
    gh_error err = { "" };
    gh_status status;

    memset(stats, 0, sizeof(*stats));
    stats->struct_size = sizeof(*stats);
    status = host->gh->overlap_get_stats(host->session, stats, &err);
    return status == GH_OK
               ? 0
               : host_fail(host, "gh_overlap_get_stats", status, &err);
}

int overlap_stats(struct host *host, gh_overlap_stats *stats)
{
    const gh_overlap_stats *pair = &host->pair;

    memset(stats, 0, sizeof(*stats));
    if (!host->trainer->overlaps) {
        return 0;
    }
    if (read_stats(host, stats) != 0) {
        return -1;
    }
    stats->order = pair->struct_size != 0 ? pair->order : stats->order;
    stats->predicted_ns = pair->predicted_ns;
    stats->predicted_fixed_ns = pair->predicted_fixed_ns;
    stats->compute_ns = pair->compute_ns;
    stats->comm_ns = pair->comm_ns;
    return 0;
}

/* Either microbatch may be NONE. */
static int run_parts(struct host *host, int forward, int backward)
{
    const struct trainer *trainer = host->trainer;
    gh_overlap_pair pair = {
        .struct_size = sizeof(pair),
        .compute = trainer->streams[0],
        .run_node = run_node,
        .agree = host->lends_experts ? NULL : agree,
        .user = host,
    };
    gh_error err = { "" };
    gh_status status;

    if (forward != NONE) {
        pair.flags |= GH_OVERLAP_FORWARD;
        pair.forward_microbatch = (uint32_t)forward;
    }
    if (backward != NONE) {
        pair.flags |= GH_OVERLAP_BACKWARD;
        pair.backward_microbatch = (uint32_t)backward;
    }
    status = host->gh->overlap_run(host->session, &pair, &err);
    if (status == GH_OK) {
        return forward != NONE && backward != NONE
                   ? read_stats(host, &host->pair)
                   : 0;
    }
    return host->error[0] != '\0' || trainer->dev->code != CUDA_SUCCESS
               ? -1
               : host_fail(host, "gh_overlap_run", status, &err);
}

static int run_pair(struct trainer *trainer, int forward, int backward)
{
    const int last = trainer->chunk->model.n_parts - 1;

    if (backward != NONE) {
        embedding_head_before_backward(trainer, backward);
    }
    if (forward != NONE) {
        embedding_head_before_forward(trainer, forward);
        if (passes_begin(trainer->host, forward) != 0) {
            return -1;
        }
    }
    if (run_parts(trainer->host, forward, backward) != 0) {
        return -1;
    }
    if (forward != NONE) {
        struct flight *flight = &trainer->chunk->flights[forward];

        flight->out = set_part_out(flight->set, last);
        embedding_head_after_forward(trainer, forward);
    }
    if (backward != NONE) {
        struct flight *flight = &trainer->chunk->flights[backward];

        embedding_head_after_backward(trainer, backward,
                                      set_part_gradient(flight->set, 0));
        if (flight->pooled != NULL) {
            pool_return(flight->pooled, backward);
        }
    }
    return 0;
}

int overlap_step(struct trainer *trainer, int count)
{
    const int most = trainer->options->in_flight;
    int oldest = 0;

    for (int i = 0; i < count; i++) {
        const bool both = i - oldest == most - 1;

        if (run_pair(trainer, i, both ? oldest++ : NONE) != 0) {
            return -1;
        }
    }
    while (oldest < count) {
        if (run_pair(trainer, NONE, oldest++) != 0) {
            return -1;
        }
    }
    return 0;
}
