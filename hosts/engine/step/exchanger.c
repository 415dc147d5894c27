/*
 * exchanger.c - see exchanger.h.
 *
 * Received rows are written into the exchange's window, and copied from there
 * to where the parts read them.  Peers write to the window, so it must stay,
 * while sets of activations come and go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/exchanger.h"

#include <stdio.h>
#include <string.h>

static int fail(const struct exchanger *exchanger, const char *call,
                const gh_error *err)
{
    return device_fail(exchanger->trainer->dev, "%s: %.200s", call, err->text);
}

/* The library must not be called once the communicator was aborted, because it
 * would look at it. */
static bool is_gone(const struct exchanger *exchanger)
{
    return exchanger->trainer->options->ranks->experts.gone;
}

/* The part of the window that the next exchange writes.  All ranks choose the
 * same one. */
static uint32_t next_part(struct exchanger *exchanger, CUstream stream)
{
    if (exchange_is_captured(exchanger->trainer->dev, stream) ||
        !GH_HAS(exchanger->library.gh, gh_api, exchange_release_window)) {
        return EXCHANGER_IN_GRAPHS; /* 0.5 does not know turns */
    }
    exchanger->part = exchanger->part == EXCHANGER_TURN_1 ? EXCHANGER_TURN_2
                                                          : EXCHANGER_TURN_1;
    return exchanger->part;
}

/* Nothing runs beside an exchange on the stream that computes.  A library of 0.5
 * does not know the flag. */
static uint32_t alone(const struct exchanger *exchanger, CUstream stream)
{
    return stream == exchanger->trainer->streams[0] &&
                   GH_HAS(exchanger->library.gh, gh_api,
                          exchange_release_window)
               ? GH_EXCHANGE_ALONE
               : 0;
}

/* struct exchange.carry */
static int carry(void *user, const float *send, float *recv,
                 const size_t *counts, CUstream stream)
{
    static const uint32_t flags[EXCHANGER_PARTS] = {
        [EXCHANGER_TURN_1] = GH_EXCHANGE_TURN_1,
        [EXCHANGER_TURN_2] = GH_EXCHANGE_TURN_2,
    };
    struct exchanger *exchanger = user;
    const struct comm *comm = &exchanger->trainer->options->ranks->experts;
    const size_t n = (size_t)comm->n;
    uint64_t bytes[EXCHANGE_RANKS * EXCHANGE_RANKS], comes = 0;
    gh_exchange_part parts[EXCHANGE_RANKS];
    const uint32_t part = next_part(exchanger, stream);
    const uint64_t at = part * exchanger->part_bytes;
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .flags = flags[part] | alone(exchanger, stream),
                                .stream = stream,
                                .send = send,
                                .window_offset = at,
                                .parts = parts };
    const gh_api *gh = exchanger->library.gh;
    gh_error err = { "" };

    for (size_t i = 0; i < n * n; i++) {
        bytes[i] = counts[i] * sizeof(float);
    }
    for (size_t i = 0; i < n; i++) {
        comes += bytes[i * n + (size_t)comm->rank];
    }
    gh->exchange_lay_out((uint32_t)n, (uint32_t)comm->rank, bytes, parts);
    if (is_gone(exchanger)) {
        return device_fail(exchanger->trainer->dev, "the ranks have parted");
    }
    if (gh->exchange_all_to_all(exchanger->x, &op, &err) != GH_OK) {
        return fail(exchanger, "gh_exchange_all_to_all", &err);
    }
    return comes == 0
               ? 0
               : DEVICE_CALL(exchanger->trainer->dev, cuMemcpyDtoDAsync,
                             device_address(recv),
                             device_address(gh->exchange_window(exchanger->x)) +
                                 at,
                             comes, stream);
}

static int wait_for(void *user, CUstream stream)
{
    struct exchanger *exchanger = user;
    gh_error err = { "" };

    if (is_gone(exchanger)) {
        return device_fail(exchanger->trainer->dev, "the ranks have parted");
    }
    return exchanger->library.gh->exchange_wait(exchanger->x, stream, &err) ==
                   GH_OK
               ? 0
               : fail(exchanger, "gh_exchange_wait", &err);
}

/* Called when ranks have given up: ends what waits in the group, and what waits
 * for that. */
static void abort_groups(void *user)
{
    struct exchanger *exchanger = user;

    ranks_let_go(exchanger->trainer->options->ranks);
}

static gh_status create(struct exchanger *exchanger, gh_error *err)
{
    const struct trainer *trainer = exchanger->trainer;
    const struct options *options = trainer->options;
    const struct comm *comm = &options->ranks->experts;
    const gh_exchange_desc desc = {
        .struct_size = sizeof(desc),
        .flags = options->suspend != 0 ? GH_EXCHANGE_SUSPENDS : 0,
        .rank = (uint32_t)comm->rank,
        .n_ranks = (uint32_t)comm->n,
        .window_bytes = EXCHANGER_PARTS * exchanger->part_bytes,
        .kind = options->exchange,
        .comm = comm->handle,
        .nccl = options->ranks->nccl,
        .user = exchanger,
        .abort = abort_groups,
        .driver = strcmp(trainer->dev->path, DEVICE_CUDA) == 0
                      ? "cuda"
                      : trainer->dev->path,
        .context = trainer->dev->context,
        .device = trainer->dev->id,
        .environment = exchanger->environment.strings,
    };

    return exchanger->library.gh->exchange_create(&desc, &exchanger->x, err);
}

int exchanger_open(struct exchanger *exchanger, struct trainer *trainer,
                   enum mode mode, char *error, size_t error_bytes)
{
    const struct config *config = &trainer->model.config;
    const struct options *options = trainer->options;
    struct exchange *exchange = ranks_ep(options->ranks);
    gh_error err = { "" };

    memset(exchanger, 0, sizeof(*exchanger));
    if (options->exchange == NULL || exchange == NULL) {
        return 0;
    }
    exchanger->trainer = trainer;
    exchanger->part_bytes = (uint64_t)config_room(config) *
                            (uint64_t)config->hidden * sizeof(float);
    if (library_open(&exchanger->library, options->library, error,
                     error_bytes) != 0) {
        return -1;
    }
    if (!GH_HAS(exchanger->library.gh, gh_api, exchange_get_stats)) {
        snprintf(error, error_bytes,
                 "--library %s: it has no gh_exchange_create, which --exchange "
                 "needs; take 0.5 or later",
                 options->library);
        return -1;
    }
    if (environment_make(&exchanger->environment, options, mode, false, 0) !=
        0) {
        snprintf(error, error_bytes, "out of memory");
        return -1;
    }
    if (create(exchanger, &err) != GH_OK) {
        snprintf(error, error_bytes, "gh_exchange_create: %s", err.text);
        return -1;
    }
    exchange->carry = carry;
    exchange->wait = wait_for;
    exchange->user = exchanger;
    trainer->exchanger = exchanger;
    return 0;
}

int exchanger_suspend(struct exchanger *exchanger)
{
    gh_error err = { "" };
    gh_status status;

    if (exchanger == NULL || exchanger->x == NULL) {
        return 0;
    }
    status = exchanger->library.gh->exchange_suspend(
        exchanger->x, exchanger->trainer->streams[0], &err);
    exchanger->suspended = status == GH_OK;
    return status == GH_OK || status == GH_ERR_UNSUPPORTED
               ? 0
               : fail(exchanger, "gh_exchange_suspend", &err);
}

int exchanger_resume(struct exchanger *exchanger)
{
    gh_error err = { "" };

    if (exchanger == NULL || !exchanger->suspended) {
        return 0;
    }
    exchanger->suspended = false;
    return exchanger->library.gh->exchange_resume(exchanger->x, &err) == GH_OK
               ? 0
               : fail(exchanger, "gh_exchange_resume", &err);
}

void exchanger_let_go(struct exchanger *exchanger)
{
    gh_exchange_stats stats = { .struct_size = sizeof(stats) };

    if (exchanger->x == NULL ||
        exchanger->library.gh->exchange_get_stats(exchanger->x, &stats, NULL) !=
            GH_OK) {
        return;
    }
    if (stats.kind != GH_EXCHANGE_NCCL || !is_gone(exchanger)) {
        (void)exchanger->library.gh->exchange_wait(
            exchanger->x, exchanger->trainer->streams[0], NULL);
    }
}

void exchanger_close(struct exchanger *exchanger)
{
    struct exchange *exchange;

    if (exchanger->trainer == NULL) {
        return;
    }
    exchange = &exchanger->trainer->options->ranks->exchange;
    exchange->carry = NULL;
    exchange->wait = NULL;
    if (exchanger->x != NULL) {
        exchanger->library.gh->exchange_destroy(exchanger->x);
    }
    environment_free(&exchanger->environment);
    library_close(&exchanger->library);
    memset(exchanger, 0, sizeof(*exchanger));
}

void exchanger_stats(const struct exchanger *exchanger,
                     gh_exchange_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    if (exchanger->x == NULL) {
        return;
    }
    stats->struct_size = sizeof(*stats);
    if (exchanger->library.gh->exchange_get_stats(exchanger->x, stats, NULL) !=
        GH_OK) {
        stats->struct_size = 0;
    }
}
