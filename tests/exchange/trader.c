/*
 * trader.c - see trader.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const patient[] = { "GRAPHHOOKS_TIMEOUT=20",
                                       "GRAPHHOOKS_LOG=off", NULL };

uint64_t trader_bytes(const struct trader *t, enum trader_shape shape, int i,
                      int j)
{
    switch (shape) {
    case SHAPE_FULL:
        return t->unit * (uint64_t)(1 + (i * 3 + j) % 4);
    case SHAPE_ALL_TO_ONE:
        return j == t->r->n - 1 ? t->unit * 3 + 5 : 0;
    case SHAPE_NONE:
        return 0;
    case SHAPE_CAPACITY:
        return t->unit * 2;
    case SHAPE_UNEVEN:
    case SHAPE_LATER:
    default:
        return (i + 2 * j) % 3 == 0
                   ? 0
                   : t->unit * (uint64_t)((i * 5 + j * 3) % 4) + 7;
    }
}

static unsigned char byte_of(uint32_t round, int from, int to, uint64_t i)
{
    return (unsigned char)(round * 37u + (uint32_t)from * 11u +
                           (uint32_t)to * 5u + (uint32_t)i);
}

/* ---- a beginning and an end ---------------------------------------------- */

/* What no function of the host's may do with its exchange. */
static void call_back(struct trader *t)
{
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .stream = t->r->stream };

    if (t->x != NULL) {
        t->asked++;
        t->obeyed += gh_exchange_all_to_all(t->x, &op, NULL) != GH_ERR_STATE;
        t->obeyed += gh_exchange_wait(t->x, t->r->stream, NULL) != GH_ERR_STATE;
        gh_exchange_destroy(t->x);
    }
}

/* By the board, which processes share too. */
static gh_status bring(void *user, uint32_t bank, const uint64_t *mine,
                       uint64_t *all, uint32_t n)
{
    struct trader *t = user;

    (void)bank;
    call_back(t);
    return ranks_gather(t->r, mine, all, n,
                        t->options.environment != NULL ? 3 : 30)
               ? GH_OK
               : GH_ERR_RANKS;
}

static void note_abort(void *user)
{
    struct trader *t = user;

    t->aborted++;
    call_back(t);
    nccl.ncclCommAbort(t->r->comm);
    t->r->comm = NULL;
}

static void make_memory(struct trader *t)
{
    void *memory = NULL;
    CUdeviceptr window = 0;

    drv.cuMemAlloc(&t->send, t->most);
    drv.cuMemAllocHost(&memory, t->most * TRADER_ROUNDS);
    t->out = memory;
    drv.cuMemAllocHost(&memory, t->window_bytes * TRADER_ROUNDS);
    t->in = memory;
    if (t->options.releases) {
        drv.cuStreamCreate(&t->reader, CU_STREAM_NON_BLOCKING);
        drv.cuEventCreate(&t->read, CU_EVENT_DISABLE_TIMING);
    }
    if (t->options.own_window) {
        drv.cuMemAlloc(&window, t->window_bytes + 512);
        t->theirs = (char *)pointer(window) + 512;
    }
}

gh_status trader_try(struct trader *t, struct rank *r,
                     const struct trader_options *options)
{
    gh_exchange_desc desc = { .struct_size = sizeof(desc) };
    gh_status status;

    memset(t, 0, sizeof(*t));
    t->r = r;
    t->options = *options;
    t->unit = options->unit != 0 ? options->unit : 96;
    t->most = (uint64_t)r->n * (4 * t->unit + 16);
    t->window_bytes = (options->in_turn ? 3 : 2) * t->most;
    if (!options->no_memory) {
        make_memory(t);
    }

    desc.flags = options->flags;
    desc.rank = options->all_first ? 0 : (uint32_t)r->rank;
    desc.n_ranks = (uint32_t)r->n;
    desc.window_bytes = t->window_bytes;
    desc.window = t->theirs;
    desc.kind = options->kind;
    desc.small = options->small;
    desc.comm = options->no_comm || !ranks_have_nccl() ? NULL : r->comm;
    desc.nccl = ranks_nccl();
    desc.user = t;
    desc.gather = options->by_host || !ranks_have_nccl() ? bring : NULL;
    desc.abort = options->aborts ? note_abort : NULL;
    desc.driver = ranks_driver();
    desc.context = r->ctx;
    desc.environment =
        options->environment != NULL ? options->environment : patient;
    status = gh_exchange_create(&desc, &t->x, &t->err);
    if (status == GH_OK) {
        t->window = gh_exchange_window(t->x);
    }
    return status;
}

bool trader_open(struct trader *t, struct rank *r,
                 const struct trader_options *options)
{
    if (trader_try(t, r, options) != GH_OK) {
        trader_close(t);
        return says(r, false, "an exchange is made: %.160s", t->err.text);
    }
    return true;
}

void trader_close(struct trader *t)
{
    for (int i = 0; i < 3 * N_SHAPES; i++) {
        if (t->graphs[i / 3][i % 3] != NULL) {
            drv.cuGraphExecDestroy(t->graphs[i / 3][i % 3]);
        }
    }
    gh_exchange_destroy(t->x);
    if (t->reader != NULL) {
        drv.cuStreamDestroy(t->reader);
        drv.cuEventDestroy(t->read);
    }
    drv.cuMemFree(t->send);
    drv.cuMemFreeHost(t->out);
    drv.cuMemFreeHost(t->in);
    if (t->theirs != NULL) {
        drv.cuMemFree((CUdeviceptr)(uintptr_t)(t->theirs - 512));
    }
    t->x = NULL;
}

/* ---- rounds -------------------------------------------------------------- */

/* The turn of the next round: 1 and 2 alternate, and a round without one may
 * come anywhere. */
static uint32_t next_turn(struct trader *t)
{
    const uint32_t call = t->calls++;

    return !t->options.in_turn || call % 5 == 3 ? 0 : 1 + call % 2;
}

/* Each turn has a part of the window of its own. */
static uint64_t at_of(const struct trader *t, enum trader_shape shape,
                      uint32_t turn)
{
    if (t->options.in_turn) {
        return t->options.one_half ? 0 : turn * t->most;
    }
    return shape == SHAPE_LATER ? t->most : 0;
}

/* On a stream that comes after what this one has done, and before what it will
 * do. */
static gh_status release(struct trader *t)
{
    gh_status status;

    drv.cuEventRecord(t->read, t->r->stream);
    drv.cuStreamWaitEvent(t->reader, t->read, 0);
    status = gh_exchange_release_window(t->x, t->reader, &t->err);
    drv.cuEventRecord(t->read, t->reader);
    drv.cuStreamWaitEvent(t->r->stream, t->read, 0);
    return status;
}

static gh_status exchange(struct trader *t, enum trader_shape shape,
                          uint32_t turn)
{
    const uint32_t flags[] = { t->options.releases ? GH_EXCHANGE_RELEASED : 0,
                               GH_EXCHANGE_TURN_1, GH_EXCHANGE_TURN_2 };
    uint64_t bytes[MOST_RANKS * MOST_RANKS];
    gh_exchange_part parts[MOST_RANKS];
    const int n = t->r->n;
    gh_exchange_op op = { .struct_size = sizeof(op),
                          .flags = flags[turn] |
                                   (t->options.alone ? GH_EXCHANGE_ALONE : 0),
                          .stream = t->r->stream,
                          .send = pointer(t->send),
                          .window_offset = at_of(t, shape, turn) };

    if (shape == SHAPE_CAPACITY) {
        op.capacity = trader_bytes(t, shape, 0, 0);
    } else {
        for (int i = 0; i < n * n; i++) {
            bytes[i] = trader_bytes(t, shape, i / n, i % n);
        }
        gh_exchange_lay_out((uint32_t)n, (uint32_t)t->r->rank, bytes, parts);
        op.parts = parts;
    }
    return gh_exchange_all_to_all(t->x, &op, &t->err);
}

static void write_out(struct trader *t, uint32_t round,
                      enum trader_shape shape)
{
    char *to = t->out + round * t->most;

    memset(to, 0, t->most);
    for (int peer = 0; peer < t->r->n; peer++) {
        const uint64_t bytes = trader_bytes(t, shape, t->r->rank, peer);

        for (uint64_t i = 0; i < bytes; i++) {
            *to++ = (char)byte_of(round, t->r->rank, peer, i);
        }
    }
}

/* What has come, one part behind the other. */
static void take_in(struct trader *t, uint32_t round)
{
    const enum trader_shape shape = t->shapes[round];
    uint64_t bytes = 0;

    for (int i = 0; i < t->r->n; i++) {
        bytes += trader_bytes(t, shape, i, t->r->rank);
    }
    if (bytes != 0) {
        drv.cuMemcpyDtoHAsync(
            t->in + round * t->window_bytes,
            (CUdeviceptr)(uintptr_t)t->window +
                at_of(t, shape, t->turns[round]),
            bytes, t->r->stream);
    }
}

static gh_status record(struct trader *t, enum trader_shape shape,
                        uint32_t turn)
{
    CUstream stream = t->r->stream;
    CUgraph graph = NULL;
    gh_status status;

    drv.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    status = exchange(t, shape, turn);
    if (drv.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) {
        return status != GH_OK ? status : GH_ERR_DEVICE;
    }
    if (drv.cuGraphInstantiateWithFlags(&t->graphs[shape][turn], graph, 0) !=
        CUDA_SUCCESS) {
        status = GH_ERR_DEVICE;
    }
    drv.cuGraphDestroy(graph);
    return status;
}

gh_status trader_record(struct trader *t, enum trader_shape shape)
{
    gh_status status = record(t, shape, 0);

    for (uint32_t turn = 1; turn <= 2 && t->options.in_turn; turn++) {
        status = status == GH_OK ? record(t, shape, turn) : status;
    }
    return status;
}

gh_status trader_record_broken(struct trader *t, enum trader_shape shape)
{
    CUstream stream = t->r->stream;
    CUgraph graph = NULL;
    gh_status status;

    drv.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    drv.cuStreamSynchronize(stream);
    status = exchange(t, shape, 0);
    drv.cuStreamEndCapture(stream, &graph);
    return status;
}

gh_status trader_round(struct trader *t, enum trader_shape shape,
                       bool replayed)
{
    const uint32_t round = t->rounds;
    CUstream stream = t->r->stream;
    CUgraphExec graph;
    gh_status status;
    uint32_t turn;

    if (round == TRADER_ROUNDS) {
        return GH_ERR_BUSY;
    }
    t->rounds++;
    turn = next_turn(t);
    t->shapes[round] = shape;
    t->turns[round] = turn;
    write_out(t, round, shape);
    drv.cuMemcpyHtoDAsync(t->send, t->out + round * t->most, t->most, stream);
    graph = replayed ? t->graphs[shape][turn] : NULL;
    if (t->options.releases && release(t) != GH_OK) {
        return GH_ERR_STATE;
    }
    if (graph != NULL) {
        status = drv.cuGraphLaunch(graph, stream) == CUDA_SUCCESS
                     ? GH_OK
                     : GH_ERR_DEVICE;
    } else {
        status = exchange(t, shape, turn);
    }
    if (status == GH_OK && t->options.takes_late && round > 0) {
        take_in(t, round - 1);
    } else if (status == GH_OK && !t->options.takes_late) {
        take_in(t, round);
    }
    return status;
}

gh_status trader_wait(struct trader *t)
{
    /* A seed runs one operation at a call: it is not napped in between. */
    for (int i = 0; i < 5000 && ranks_are_soft(); i++) {
        if (drv.cuStreamQuery(t->r->stream) != CUDA_ERROR_NOT_READY) {
            break;
        }
    }
    return gh_exchange_wait(t->x, t->r->stream, &t->err);
}

static bool is_right(const struct trader *t, uint32_t round)
{
    const enum trader_shape shape = t->shapes[round];
    const char *came = t->in + round * t->window_bytes;

    for (int from = 0; from < t->r->n; from++) {
        const uint64_t bytes = trader_bytes(t, shape, from, t->r->rank);

        for (uint64_t i = 0; i < bytes; i++) {
            if ((unsigned char)*came++ !=
                byte_of(round, from, t->r->rank, i)) {
                return false;
            }
        }
    }
    return true;
}

uint32_t trader_wrong_after(struct trader *t)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < t->rounds; i++) {
        wrong += !is_right(t, i);
    }
    t->rounds = 0;
    return wrong;
}

uint32_t trader_wrong(struct trader *t)
{
    return trader_wait(t) == GH_OK ? trader_wrong_after(t) : UINT32_MAX;
}

bool trader_is_exact(struct trader *t)
{
    return trader_wrong(t) == 0;
}

gh_exchange_stats trader_stats(struct trader *t)
{
    gh_exchange_stats stats = { .struct_size = sizeof(stats) };

    gh_exchange_get_stats(t->x, &stats, &t->err);
    return stats;
}
