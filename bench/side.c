/*
 * side.c - see side.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/side.h"

#include <string.h>

/* ---- opening ------------------------------------------------------------- */

static void need_nccl(const struct side *s, ncclResult_t result,
                      const char *entry)
{
    if (result != ncclSuccess) {
        bench_die("%s: %s (%s)", entry, s->nccl.ncclGetErrorString(result),
                  s->nccl.ncclGetLastError(NULL));
    }
}

static void open_nccl(struct side *s)
{
    char path[4096], text[512];
    uint64_t mine[16] = { 0 }, all[16 * RANKS_MOST];
    ncclUniqueId id;

    if (s->bench.options.nccl != NULL) {
        snprintf(path, sizeof(path), "%s", s->bench.options.nccl);
    } else if (s->bench.options.soft) {
        bench_find("GRAPHHOOKS_SOFTNCCL", "libsoftnccl.so", path, sizeof(path));
    } else {
        snprintf(path, sizeof(path), "libnccl.so.2");
    }
    if (nccl_load(path, &s->nccl, text, sizeof(text)) != 0) {
        if (s->rank->rank == 0) {
            fprintf(stderr, "bench: without NCCL: %s\n", text);
        }
        return;
    }
    snprintf(s->nccl_path, sizeof(s->nccl_path), "%s", path);
    if (s->rank->rank == 0) {
        need_nccl(s, s->nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
        memcpy(mine, &id, sizeof(id));
    }
    (void)rank_gather(s->rank, 0, mine, all, 16);
    memcpy(&id, all, sizeof(id));
    need_nccl(s,
              s->nccl.ncclCommInitRank(&s->comm, (int)s->rank->n, id,
                                       (int)s->rank->rank),
              "ncclCommInitRank");
}

gh_exchange *side_exchange(struct side *s, enum exchange_by by, void *window,
                           uint64_t bytes)
{
    /* The caller's own variables must not decide what is measured. */
    static const char *const environment[] = { "GRAPHHOOKS_LOG=off", NULL };
    const gh_exchange_desc desc = {
        .struct_size = sizeof(desc),
        .flags = s->bench.options.soft ? GH_EXCHANGE_IPC : 0,
        .rank = s->rank->rank,
        .n_ranks = s->rank->n,
        .window = window,
        .window_bytes = bytes,
        .kind = by_name(by),
        .comm = s->comm,
        .nccl = s->nccl_path,
        .user = s->rank,
        .gather = s->comm != NULL ? NULL : rank_gather,
        .driver = s->bench.options.soft ? s->bench.driver_path : "cuda",
        .context = s->bench.ctx,
        .environment = environment,
        .small = by == BY_AUTO ? "measure" : NULL,
    };
    gh_exchange *x = NULL;
    gh_error err = { "" };

    bench_need_gh(s->bench.gh->exchange_create(&desc, &x, &err),
                  "gh_exchange_create", &err);
    return x;
}

bool side_has(const struct side *s, enum exchange_by by)
{
    return by != BY_NCCL || s->comm != NULL;
}

const char *by_name(enum exchange_by by)
{
    static const char *const names[] = { "copy", "nccl", "bare", "turns",
                                         "kernel", "auto" };

    return names[by];
}

/* Counts the devices.  If there are more ranks, ranks share devices. */
static uint32_t count_devices(const struct side *s)
{
    const uint64_t mine = (uint64_t)s->bench.ordinal;
    uint64_t all[RANKS_MOST], seen = 0;

    (void)rank_gather(s->rank, 0, &mine, all, 1);
    for (uint32_t i = 0; i < s->rank->n; i++) {
        seen |= UINT64_C(1) << all[i] % 64;
    }
    return (uint32_t)__builtin_popcountll(seen);
}

void side_open(struct side *s, struct rank *rank,
               const struct bench_options *options)
{
    struct bench_options mine = *options;
    CUdeviceptr send;
    int least, greatest;

    memset(s, 0, sizeof(*s));
    s->rank = rank;
    mine.rank = rank->rank;
    bench_open(&s->bench, &mine);
    products_open(&s->products, &s->bench, options->cublas);
    s->unit = options->soft ? 1024 : 1048576;
    s->most = 64 * s->unit;
    NEED(&s->bench, cuCtxGetStreamPriorityRange, (&least, &greatest));
    NEED(&s->bench, cuStreamCreateWithPriority,
         (&s->side, CU_STREAM_NON_BLOCKING, greatest));
    NEED(&s->bench, cuEventCreate, (&s->begins, 0));
    NEED(&s->bench, cuEventCreate, (&s->ends, 0));
    NEED(&s->bench, cuEventCreate, (&s->join, CU_EVENT_DISABLE_TIMING));
    NEED(&s->bench, cuMemAlloc, (&send, s->most));
    NEED(&s->bench, cuMemsetD8Async, (send, 1, s->most, s->bench.stream));
    bench_sync(&s->bench);
    s->send = (void *)(uintptr_t)send;
    s->devices = count_devices(s);
    open_nccl(s);
}

void side_close(struct side *s)
{
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)s->send));
    NEED(&s->bench, cuStreamDestroy, (s->side));
    NEED(&s->bench, cuEventDestroy, (s->begins));
    NEED(&s->bench, cuEventDestroy, (s->ends));
    NEED(&s->bench, cuEventDestroy, (s->join));
    if (s->comm != NULL) {
        need_nccl(s, s->nccl.ncclCommDestroy(s->comm), "ncclCommDestroy");
    }
    products_close(&s->products);
    bench_close(&s->bench);
}

/* ---- one exchange -------------------------------------------------------- */

uint32_t side_turn(struct side *s)
{
    const uint32_t i = s->sent++;

    return i == 0 ? 0 : 1 + i % 2;
}

void side_trade(struct side *s, gh_exchange *x, const void *send, uint64_t at,
                const uint64_t *table, uint32_t turn, CUstream stream)
{
    static const uint32_t flags[] = { 0, GH_EXCHANGE_TURN_1,
                                      GH_EXCHANGE_TURN_2 };
    gh_exchange_part parts[RANKS_MOST];
    const gh_exchange_op op = {
        .struct_size = sizeof(op),
        .flags = flags[turn & 3] |
                 ((turn & SIDE_ALONE) != 0 ? GH_EXCHANGE_ALONE : 0),
        .stream = stream,
        .send = send,
        .window_offset = at,
        .parts = parts
    };
    gh_error err = { "" };

    s->bench.gh->exchange_lay_out(s->rank->n, s->rank->rank, table, parts);
    bench_need_gh(s->bench.gh->exchange_all_to_all(x, &op, &err),
                  "gh_exchange_all_to_all", &err);
}

/* How much goes to each rank.  Parts of large messages begin where copies are
 * fast. */
uint64_t side_part(const struct side *s, uint64_t bytes)
{
    const uint64_t part = bytes / (s->rank->n - 1);

    return part - part % (part < 65536 ? 4 : 512);
}

void side_send(struct side *s, gh_exchange *x, const void *send, uint64_t at,
               uint64_t bytes, uint32_t turn, CUstream stream)
{
    const uint32_t n = s->rank->n;
    uint64_t table[RANKS_MOST * RANKS_MOST];

    for (uint32_t i = 0; i < n * n; i++) {
        table[i] = i / n == i % n ? 0 : side_part(s, bytes);
    }
    side_trade(s, x, send, at, table, turn, stream);
}

/* ---- what it says -------------------------------------------------------- */

FILE *side_json_begin(const struct side *s, const char *name)
{
    FILE *file = s->rank->rank == 0 ? bench_json_begin(&s->bench, name)
                                    : fopen("/dev/null", "w");

    if (file == NULL) {
        bench_die("cannot write /dev/null");
    }
    fprintf(file, "\"ranks\": %u, \"devices\": %u, \"nccl\": %d,\n",
            s->rank->n, s->devices, s->comm != NULL ? s->nccl.version : 0);
    return file;
}

void side_json_end(const struct side *s, FILE *file)
{
    if (s->rank->rank == 0) {
        bench_json_end(&s->bench, file);
    } else {
        fclose(file);
    }
}

/* ---- waiting ------------------------------------------------------------- */

/* Waits for everything, so that nothing of it is still running on another
 * rank. */
void side_wait(struct side *s, gh_exchange *x)
{
    gh_error err = { "" };

    if (x != NULL) {
        bench_need_gh(s->bench.gh->exchange_wait(x, s->bench.stream, &err),
                      "gh_exchange_wait", &err);
    } else {
        bench_sync(&s->bench);
    }
    s->sent = 0;
    rank_meet(s->rank);
}
