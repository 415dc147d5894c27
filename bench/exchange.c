/*
 * exchange.c - what an exchange between two ranks takes, and takes from the
 * compute beside it: the library's own, by copies, and NCCL's.
 *
 * First the exchange alone, over bare copies of the same bytes into the other
 * rank's memory.  Then beside matrix products that are simply issued with it.
 * Then in a host with experts, whose nodes the library orders.  On one GPU the
 * ranks share it, each by half of the products.
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
    PRODUCTS = 4 /* of each rank, beside one exchange */
};

static const uint64_t mib[] = { 1, 4, 16, 64 };

/* ---- alone, and beside products ------------------------------------------ */

struct window {
    CUdeviceptr memory;
    CUdeviceptr bare;  /* where bare copies go, which nobody waits for */
    CUdeviceptr there; /* the next rank's, mapped here */
    gh_exchange *x[EXCHANGES];
    void *a, *b, *c; /* of products */
};

static CUdeviceptr open_there(struct side *s, CUdeviceptr memory)
{
    uint64_t mine[8], all[8 * RANKS_MOST];
    CUipcMemHandle handle;
    CUdeviceptr there = 0;

    _Static_assert(sizeof(handle) == sizeof(mine), "a handle is 64 bytes");
    NEED(&s->bench, cuIpcGetMemHandle, (&handle, memory));
    memcpy(mine, &handle, sizeof(mine));
    (void)rank_gather(s->rank, 0, mine, all, 8);
    memcpy(&handle, &all[8 * ((s->rank->rank + 1) % s->rank->n)],
           sizeof(handle));
    NEED(&s->bench, cuIpcOpenMemHandle,
         (&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return there;
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
    NEED(&s->bench, cuMemAlloc, (&w->memory, s->most));
    NEED(&s->bench, cuMemAlloc, (&w->bare, s->most));
    w->there = open_there(s, w->bare);
    w->a = numbers(s, 1);
    w->b = numbers(s, 2);
    w->c = numbers(s, 3);
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        if (side_has(s, by)) {
            w->x[by] = side_exchange(s, by, (void *)(uintptr_t)w->memory,
                                     s->most);
        }
    }
}

static void close_window(struct side *s, struct window *w)
{
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        s->bench.gh->exchange_destroy(w->x[by]);
    }
    rank_meet(s->rank);
    NEED(&s->bench, cuIpcCloseMemHandle, (w->there));
    rank_meet(s->rank);
    NEED(&s->bench, cuMemFree, (w->memory));
    NEED(&s->bench, cuMemFree, (w->bare));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->a));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->b));
    NEED(&s->bench, cuMemFree, ((CUdeviceptr)(uintptr_t)w->c));
}

static void exchange_once(struct side *s, struct window *w, enum exchange_by by,
                          uint64_t bytes, CUstream stream)
{
    if (by == BY_BARE) {
        NEED(&s->bench, cuMemcpyAsync,
             (w->there, (CUdeviceptr)(uintptr_t)s->send, bytes, stream));
    } else {
        side_send(s, w->x[by], s->send, 0, bytes, stream);
    }
}

/* `n` exchanges, `n` times so many products, or both beside each other, on an
 * idle device; the nanoseconds of the slowest rank, for each. */
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

static void measure_copies(struct side *s, struct window *w, FILE *file,
                           int rounds)
{
    fprintf(file, "\"copies\": [\n");
    for (size_t k = 0; k < sizeof(mib) / sizeof(mib[0]); k++) {
        const uint64_t bytes = mib[k] * s->unit;
        double ns[EXCHANGES][MOST_ROUNDS], ratios[MOST_ROUNDS];

        for (int i = -1; i < rounds; i++) {
            for (enum exchange_by by = BY_COPY; by < EXCHANGES; by++) {
                if (side_has(s, by)) {
                    ns[by][i < 0 ? 0 : i] =
                        timed(s, w, by, bytes, REPEATS, 0, true);
                }
            }
            ratios[i < 0 ? 0 : i] =
                ns[BY_BARE][i < 0 ? 0 : i] / ns[BY_COPY][i < 0 ? 0 : i];
        }
        fprintf(file, "%s  {\"bytes\": %llu, ", k > 0 ? ",\n" : "",
                (unsigned long long)bytes);
        for (enum exchange_by by = BY_COPY; by < EXCHANGES; by++) {
            if (side_has(s, by)) {
                char key[32];

                snprintf(key, sizeof(key), "%s_ns", by_name(by));
                bench_json_spread(file, key,
                                  bench_spread(ns[by], (size_t)rounds));
            }
        }
        fprintf(file, "\"bare_over_copy\": %.4f}",
                bench_spread(ratios, (size_t)rounds).median);
    }
    fprintf(file, "\n],\n");
}

/* As many products as take longer than the exchange. */
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

static FILE *begin(struct side *s)
{
    FILE *file = s->rank->rank == 0 ? bench_json_begin(&s->bench, "exchange")
                                    : fopen("/dev/null", "w");

    if (file == NULL) {
        bench_die("cannot write /dev/null");
    }
    fprintf(file,
            "\"ranks\": %u, \"mps\": %s, \"nccl\": %d, \"products\": "
            "{\"by\": \"%s\", \"n\": %d},\n",
            s->rank->n, has_mps() ? "true" : "false",
            s->comm != NULL ? s->nccl.version : 0, s->products.by,
            s->products.n);
    return file;
}

static void run_rank(struct rank *rank, void *user)
{
    const struct bench_options *options = user;
    /* Ranks that take turns on a GPU are slow, and their numbers say little. */
    const int usual = options->soft || has_mps() ? ROUNDS : 2;
    const int rounds = options->rounds != 0 ? options->rounds : usual;
    struct side side;
    struct window window;
    FILE *file;

    side_open(&side, rank, options);
    file = begin(&side);
    open_window(&side, &window);
    measure_copies(&side, &window, file, rounds);
    measure_beside(&side, &window, file, rounds);
    close_window(&side, &window);
    fflush(file);
    exchange_overlap(&side, file, rounds);
    if (rank->rank == 0) {
        bench_json_end(&side.bench, file);
    } else {
        fclose(file);
    }
    side_close(&side);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_parse(
        argc, argv,
        "Measures exchanges between two ranks, alone and beside compute.");

    if (options.rounds > MOST_ROUNDS) {
        bench_die("--rounds is %d; give %d at most", options.rounds,
                  MOST_ROUNDS);
    }
    if (options.soft) {
        setenv("SOFTCUDA_DEVICES", "2", 1);
        setenv("SOFTCUDA_PROCESSES", "1", 1);
    }
    ranks_run(2, options.soft, run_rank, &options);
    return 0;
}
