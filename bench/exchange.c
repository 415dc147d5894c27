/*
 * exchange.c - how long an exchange between ranks takes, and how much it slows
 * the compute beside it: the library's own, by copies, and NCCL's.
 *
 * First comes the exchange alone, compared with bare copies of the same bytes
 * into the other ranks' memory: issued, and then in graphs, where small parts
 * and calls in turn are measured too.  Then it runs beside matrix products that are
 * simply issued with it.  Then it is part of a host with experts, whose nodes
 * the library orders.  If there are fewer GPUs than ranks, ranks share them,
 * and so do their products.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROUNDS = 6,
    REPEATS = 8,
    PRODUCTS = 4 /* by each rank, beside one exchange */
};

/* MiB that a rank sends to all others together. */
static const uint64_t mib[] = { 1, 4, 16, 64, 256 };
enum { SIZES = sizeof(mib) / sizeof(mib[0]) };

/* KiB that a rank sends to each other one. */
static const uint64_t kib[] = { 64, 256, 1024, 4096, 16384, 65536 };
enum {
    KIBS = sizeof(kib) / sizeof(kib[0]),
    IN_GRAPH = 40, /* exchanges, of which the first one is never in turn */
    WAYS_IN_GRAPH = BY_AUTO + 1
};

/* ---- alone --------------------------------------------------------------- */

struct window {
    CUdeviceptr memory;
    uint64_t bytes;
    CUdeviceptr bare; /* for bare copies, which nobody waits for */
    CUdeviceptr there[RANKS_MOST]; /* the others' memory, mapped here */
    CUdeviceptr send;
    gh_exchange *x[WAYS_IN_GRAPH]; /* that of BY_TURNS is that of BY_COPY */
    void *a, *b, *c; /* for products */
};

static void open_there(struct side *s, struct window *w)
{
    uint64_t mine[8], all[8 * RANKS_MOST];
    CUipcMemHandle handle;

    _Static_assert(sizeof(handle) == sizeof(mine), "a handle is 64 bytes");
    NEED(&s->bench, cuIpcGetMemHandle, (&handle, w->bare));
    memcpy(mine, &handle, sizeof(mine));
    (void)rank_gather(s->rank, 0, mine, all, 8);
    for (uint32_t i = 0; i < s->rank->n; i++) {
        if (i != s->rank->rank) {
            memcpy(&handle, &all[8 * (size_t)i], sizeof(handle));
            NEED(&s->bench, cuIpcOpenMemHandle,
                 (&w->there[i], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        }
    }
}

static void close_there(struct side *s, struct window *w)
{
    for (uint32_t i = 0; i < s->rank->n; i++) {
        if (i != s->rank->rank) {
            NEED(&s->bench, cuIpcCloseMemHandle, (w->there[i]));
        }
    }
}

static void *numbers(struct side *s, uint32_t seed)
{
    void *host = malloc(s->products.bytes);
    CUdeviceptr device;

    if (host == NULL) {
        bench_die("no memory");
    }
    products_fill(&s->products, host, s->products.bytes, seed);
    NEED(&s->bench, cuMemAlloc, (&device, s->products.bytes));
    NEED(&s->bench, cuMemcpyHtoD, (device, host, s->products.bytes));
    NEED(&s->bench, cuCtxSynchronize, ());
    free(host);
    return (void *)(uintptr_t)device;
}

static void open_window(struct side *s, struct window *w)
{
    memset(w, 0, sizeof(*w));
    w->bytes = mib[SIZES - 1] * s->unit;
    if (w->bytes < 2 * (kib[KIBS - 1] * (s->unit / 1024) * (s->rank->n - 1))) {
        w->bytes = 2 * (kib[KIBS - 1] * (s->unit / 1024) * (s->rank->n - 1));
    }
    NEED(&s->bench, cuMemAlloc, (&w->memory, w->bytes));
    NEED(&s->bench, cuMemAlloc, (&w->bare, w->bytes));
    NEED(&s->bench, cuMemAlloc, (&w->send, w->bytes));
    NEED(&s->bench, cuMemsetD8Async, (w->send, 1, w->bytes, s->bench.stream));
    bench_sync(&s->bench);
    open_there(s, w);
    w->a = numbers(s, 1);
    w->b = numbers(s, 2);
    w->c = numbers(s, 3);
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        if (side_has(s, by)) {
            w->x[by] = side_exchange(s, by, (void *)(uintptr_t)w->memory,
                                     w->bytes);
        }
    }
    w->x[BY_TURNS] = w->x[BY_COPY];
    for (enum exchange_by by = BY_KERNEL; by <= BY_AUTO; by++) {
        w->x[by] = side_exchange(s, by, (void *)(uintptr_t)w->memory, w->bytes);
    }
}

static void close_window(struct side *s, struct window *w)
{
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        s->bench.gh->exchange_destroy(w->x[by]);
    }
    s->bench.gh->exchange_destroy(w->x[BY_KERNEL]);
    s->bench.gh->exchange_destroy(w->x[BY_AUTO]);
    rank_meet(s->rank);
    close_there(s, w);
    rank_meet(s->rank);
    NEED(&s->bench, cuMemFree, (w->memory));
    NEED(&s->bench, cuMemFree, (w->bare));
    NEED(&s->bench, cuMemFree, (w->send));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->a));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->b));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->c));
}

static void exchange_once(struct side *s, struct window *w, enum exchange_by by,
                          uint64_t bytes, CUstream stream)
{
    const uint32_t n = s->rank->n, mine = s->rank->rank;
    const uint64_t part = side_part(s, bytes);

    if (by != BY_BARE) {
        side_send(s, w->x[by], (void *)(uintptr_t)w->send, 0, bytes, 0,
                  stream);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t to = (mine + i) % n;

        NEED(&s->bench, cuMemcpyAsync,
             (w->there[to] + part * (mine < to ? mine : mine - 1),
              w->send + part * (i - 1), part, stream));
    }
}

/* Runs n exchanges, n times as many products, or both together, on an idle
 * device.  Returns the nanoseconds of the slowest rank, for one of the n. */
static double timed(struct side *s, struct window *w, enum exchange_by by,
                    uint64_t bytes, int n, int products, bool exchanges)
{
    const struct bench *bench = &s->bench;
    gh_exchange *x = exchanges && by != BY_BARE ? w->x[by] : NULL;
    double ns;
    float ms;

    side_wait(s, NULL);
    NEED(bench, cuEventRecord, (s->begins, bench->stream));
    for (int i = 0; i < n; i++) {
        if (exchanges) {
            exchange_once(s, w, by, bytes, s->side);
        }
        for (int k = 0; k < products; k++) {
            product(&s->products, GEMM_NN, w->a, w->b, w->c, false,
                    bench->stream);
        }
    }
    NEED(bench, cuEventRecord, (s->join, s->side));
    NEED(bench, cuStreamWaitEvent, (bench->stream, s->join, 0));
    NEED(bench, cuEventRecord, (s->ends, bench->stream));
    side_wait(s, x);
    NEED(bench, cuEventElapsedTime, (&ms, s->begins, s->ends));
    ns = (double)ms * 1e6 / n;
    rank_most(s->rank, &ns, 1);
    return ns;
}

/* The nanoseconds of this host for a call that is not captured. */
static double timed_issue(struct side *s, struct window *w, enum exchange_by by)
{
    uint64_t begun;
    double ns;

    side_wait(s, w->x[by]);
    begun = bench_now_ns();
    for (int i = 0; i < REPEATS; i++) {
        exchange_once(s, w, by, s->unit, s->bench.stream);
    }
    ns = (double)(bench_now_ns() - begun) / REPEATS;
    side_wait(s, w->x[by]);
    return ns;
}

/* Counts what the library issues for one exchange besides the copies of its
 * parts. */
static void count_operations(struct side *s, struct window *w, FILE *file)
{
    gh_exchange_stats before = { .struct_size = sizeof(before) };
    gh_exchange_stats after = before;

    exchange_once(s, w, BY_COPY, s->unit, s->bench.stream); /* differs */
    s->bench.gh->exchange_get_stats(w->x[BY_COPY], &before, NULL);
    exchange_once(s, w, BY_COPY, s->unit, s->bench.stream);
    s->bench.gh->exchange_get_stats(w->x[BY_COPY], &after, NULL);
    side_wait(s, w->x[BY_COPY]);
    fprintf(
        file,
        "\"operations\": {\"memory_ops\": %llu, "
        "\"memory_op_calls\": %llu, "
        "\"signal_copies\": %llu, \"event_waits\": %llu, "
        "\"batch_copies\": %llu, "
        "\"copy_issue_ns\": %.0f, \"kernel_issue_ns\": %.0f},\n",
        (unsigned long long)(after.memory_ops - before.memory_ops),
        (unsigned long long)(after.memory_op_calls - before.memory_op_calls),
        (unsigned long long)(after.signal_copies - before.signal_copies),
        (unsigned long long)(after.event_waits - before.event_waits),
        (unsigned long long)(after.batch_copies - before.batch_copies),
        timed_issue(s, w, BY_COPY), timed_issue(s, w, BY_KERNEL));
}

static void measure_copies(struct side *s, struct window *w, FILE *file,
                           int rounds)
{
    bool first = true;

    fprintf(file, "\"copies\": [\n");
    for (size_t k = s->bench.options.brief ? SIZES - 1 : 0; k < SIZES; k++) {
        const uint64_t bytes = mib[k] * s->unit;
        double ns[EXCHANGES][MOST_ROUNDS], ratios[MOST_ROUNDS];
        double over[MOST_ROUNDS];

        for (int i = -1; i < rounds; i++) {
            for (enum exchange_by by = BY_COPY; by < EXCHANGES; by++) {
                if (side_has(s, by)) {
                    ns[by][i < 0 ? 0 : i] =
                        timed(s, w, by, bytes, REPEATS, 0, true);
                }
            }
            ratios[i < 0 ? 0 : i] =
                ns[BY_BARE][i < 0 ? 0 : i] / ns[BY_COPY][i < 0 ? 0 : i];
            over[i < 0 ? 0 : i] = side_has(s, BY_NCCL)
                                      ? ns[BY_NCCL][i < 0 ? 0 : i] /
                                            ns[BY_COPY][i < 0 ? 0 : i]
                                      : 0;
        }
        fprintf(file, "%s  {\"bytes\": %llu, ", first ? "" : ",\n",
                (unsigned long long)bytes);
        first = false;
        for (enum exchange_by by = BY_COPY; by < EXCHANGES; by++) {
            if (side_has(s, by)) {
                const struct spread spread =
                    bench_spread(ns[by], (size_t)rounds);
                char key[32];

                snprintf(key, sizeof(key), "%s_ns", by_name(by));
                bench_json_spread(file, key, spread);
                fprintf(file, "\"%s_gb_s\": %.2f, ", by_name(by),
                        (double)bytes / spread.median);
            }
        }
        if (side_has(s, BY_NCCL)) {
            fprintf(file, "\"copy_over_nccl\": %.4f, ",
                    bench_spread(over, (size_t)rounds).median);
        }
        fprintf(file, "\"bare_over_copy\": %.4f}",
                bench_spread(ratios, (size_t)rounds).median);
    }
    fprintf(file, "\n],\n");
}

/* ---- in graphs ----------------------------------------------------------- */

static CUgraphExec capture_exchanges(struct side *s, struct window *w,
                                     enum exchange_by by, uint64_t bytes)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    side_wait(s, NULL);
    NEED(&s->bench, cuStreamBeginCapture,
         (s->bench.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (uint32_t i = 0; i < IN_GRAPH; i++) {
        if (by >= BY_TURNS) {
            side_send(s, w->x[by], (void *)(uintptr_t)w->send, i % 2 * bytes,
                      bytes,
                      side_turn(s) | (by == BY_AUTO ? SIDE_ALONE : 0),
                      s->bench.stream);
        } else {
            exchange_once(s, w, by, bytes, s->bench.stream);
        }
    }
    NEED(&s->bench, cuStreamEndCapture, (s->bench.stream, &graph));
    NEED(&s->bench, cuGraphInstantiateWithFlags, (&exec, graph, 0));
    NEED(&s->bench, cuGraphDestroy, (graph));
    return exec;
}

/* The nanoseconds of the slowest rank, for one exchange, and of the launch on
 * its host. */
static double timed_graph(struct side *s, struct window *w,
                          enum exchange_by by, CUgraphExec exec, double *host)
{
    const struct bench *bench = &s->bench;
    double times[2];
    uint64_t begun;
    float ms;

    side_wait(s, NULL);
    NEED(bench, cuEventRecord, (s->begins, bench->stream));
    begun = bench_now_ns();
    NEED(bench, cuGraphLaunch, (exec, bench->stream));
    times[1] = (double)(bench_now_ns() - begun);
    NEED(bench, cuEventRecord, (s->ends, bench->stream));
    side_wait(s, w->x[by]);
    NEED(bench, cuEventElapsedTime, (&ms, s->begins, s->ends));
    times[0] = (double)ms * 1e6 / IN_GRAPH;
    rank_most(s->rank, times, 2);
    *host = times[1] / IN_GRAPH;
    return times[0];
}

/* One size, all ways in turn in each round. */
static void measure_graphs_of(struct side *s, struct window *w, FILE *file,
                              uint64_t part, int rounds)
{
    const uint64_t bytes = part * (s->rank->n - 1);
    double ns[WAYS_IN_GRAPH][MOST_ROUNDS], host[WAYS_IN_GRAPH][MOST_ROUNDS];
    CUgraphExec execs[WAYS_IN_GRAPH] = { NULL };

    for (enum exchange_by by = BY_COPY; by <= BY_AUTO; by++) {
        execs[by] = side_has(s, by) ? capture_exchanges(s, w, by, bytes) : NULL;
    }
    for (int i = -1; i < rounds; i++) {
        for (enum exchange_by by = BY_COPY; by <= BY_AUTO; by++) {
            const int at = i < 0 ? 0 : i;

            if (execs[by] != NULL) {
                ns[by][at] = timed_graph(s, w, by, execs[by], &host[by][at]);
            }
        }
    }
    fprintf(file, "  {\"bytes_a_peer\": %llu", (unsigned long long)part);
    for (enum exchange_by by = BY_COPY; by <= BY_AUTO; by++) {
        double ratios[MOST_ROUNDS];

        if (execs[by] == NULL) {
            continue;
        }
        for (int i = 0; i < rounds; i++) {
            ratios[i] = ns[BY_BARE][i] / ns[by][i];
        }
        fprintf(file,
                ", \"%s_ns\": %.0f, \"%s_launch_ns\": %.0f, "
                "\"bare_over_%s\": %.4f",
                by_name(by), bench_spread(ns[by], (size_t)rounds).median,
                by_name(by), bench_spread(host[by], (size_t)rounds).median,
                by_name(by), bench_spread(ratios, (size_t)rounds).median);
        NEED(&s->bench, cuGraphExecDestroy, (execs[by]));
    }
    fputs("}", file);
}

static void measure_graphs(struct side *s, struct window *w, FILE *file,
                           int rounds)
{
    gh_exchange_stats stats = { .struct_size = sizeof(stats) };

    s->bench.gh->exchange_get_stats(w->x[BY_AUTO], &stats, NULL);
    fprintf(file, "\"small_bytes\": %llu,\n",
            (unsigned long long)stats.small_bytes);
    fprintf(file, "\"in_graphs\": [\n");
    for (size_t k = s->bench.options.brief ? KIBS - 1 : 0; k < KIBS; k++) {
        measure_graphs_of(s, w, file, kib[k] * (s->unit / 1024), rounds);
        fputs(k + 1 < KIBS ? ",\n" : "\n],\n", file);
    }
}

/* ---- beside products ----------------------------------------------------- */

/* Uses so many products that they take longer than the exchange. */
static void measure_beside(struct side *s, struct window *w, FILE *file,
                           int rounds)
{
    enum { ALONE, SENT, BOTH, RUNS };

    fprintf(file, "\"beside\": [\n");
    for (enum exchange_by by = BY_COPY; by < EXCHANGES; by++) {
        double ns[RUNS][MOST_ROUNDS], exposed[MOST_ROUNDS];

        if (!side_has(s, by)) {
            continue;
        }
        for (int i = -1; i < rounds; i++) {
            const int at = i < 0 ? 0 : i;

            ns[ALONE][at] =
                timed(s, w, by, s->most, REPEATS, PRODUCTS, false);
            ns[SENT][at] = timed(s, w, by, s->most, REPEATS, 0, true);
            ns[BOTH][at] = timed(s, w, by, s->most, REPEATS, PRODUCTS, true);
            exposed[at] = (ns[BOTH][at] - ns[ALONE][at]) / ns[SENT][at];
        }
        fprintf(file,
                "%s  {\"by\": \"%s\", \"products\": %d, \"bytes\": %llu, ",
                by == BY_COPY ? "" : ",\n", by_name(by), PRODUCTS,
                (unsigned long long)s->most);
        bench_json_spread(file, "products_ns",
                          bench_spread(ns[ALONE], (size_t)rounds));
        bench_json_spread(file, "exchange_ns",
                          bench_spread(ns[SENT], (size_t)rounds));
        bench_json_spread(file, "both_ns",
                          bench_spread(ns[BOTH], (size_t)rounds));
        fprintf(file, "\"exposed\": %.4f}",
                bench_spread(exposed, (size_t)rounds).median);
    }
    fprintf(file, "\n],\n");
}

/* ---- all of it ----------------------------------------------------------- */

static bool has_mps(void)
{
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];

    snprintf(path, sizeof(path), "%s/control",
             directory != NULL ? directory : "");
    return directory != NULL && access(path, F_OK) == 0;
}

static FILE *begin(const struct side *s)
{
    FILE *file = side_json_begin(s, "exchange");

    fprintf(file,
            "\"mps\": %s, \"products\": {\"by\": \"%s\", \"n\": %d},\n",
            has_mps() ? "true" : "false", s->products.by, s->products.n);
    return file;
}

static void run_rank(struct rank *rank, void *user)
{
    const struct bench_options *options = user;
    struct side side;
    struct window window;
    int rounds = options->rounds;
    FILE *file;

    side_open(&side, rank, options);
    if (rounds == 0) {
        /* Ranks that take turns on a GPU are slow, and their numbers say
         * little, so a few rounds are enough. */
        rounds = has_mps() || side.devices == rank->n ? ROUNDS : 2;
    }
    file = begin(&side);
    open_window(&side, &window);
    count_operations(&side, &window, file);
    measure_copies(&side, &window, file, rounds);
    measure_graphs(&side, &window, file, rounds);
    measure_beside(&side, &window, file, rounds);
    close_window(&side, &window);
    fflush(file);
    exchange_overlap(&side, file, rounds);
    side_json_end(&side, file);
    side_close(&side);
}

int main(int argc, char **argv)
{
    return ranks_bench(argc, argv,
                       "Measures exchanges between ranks (two, or --ranks), "
                       "alone and beside compute.",
                       MOST_ROUNDS, run_rank);
}
