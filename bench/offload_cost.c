/*
 * offload_cost.c - what offload costs the host's thread, and how fast its
 * copies are when they go both ways at once.
 *
 * A layer is an empty pass with a few groups.  These are measured: how much
 * more a replay pays for a group than an eager pass pays for the same two
 * calls, and how much the group's nodes add to the bare launch of a graph; how
 * much more a flush of 32 delayed commits pays than 32 bare copies; and how
 * long the copies of a flight that comes back while the next one goes out
 * take, compared with bare copies both ways.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 12,
    GROUPS = 32, /* the most groups of a layer */
    STREAMS = 2,
    ROUNDS = 30
};

struct run {
    const struct bench *bench;
    gh_session *session;
    CUstream streams[STREAMS];
    uint32_t layers, groups;
    uint64_t bytes; /* of one group */
    double calls;   /* ns in save and commit of eager passes */
    uint64_t n_calls;
};

static const char *const names[] = {
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
    "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v",
    "w", "x", "y", "z", "0", "1", "2", "3", "4", "5", NULL
};

static gh_session *open_session(const struct run *r, bool graphs, bool delay)
{
    const char *environment[] = { graphs ? "GRAPHHOOKS_ENABLE=1"
                                         : "GRAPHHOOKS_ENABLE=0",
                                  delay ? "GRAPHHOOKS_OFFLOAD_DELAY=1"
                                        : "GRAPHHOOKS_OFFLOAD_DELAY=0",
                                  NULL };
    char modules[2 * GROUPS + 1] = "";
    gh_offload_desc offload = { .struct_size = sizeof(offload),
                                .modules = modules,
                                .names = names,
                                .min_bytes = 1 };
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = r->bench->options.soft
                                           ? r->bench->driver_path
                                           : "cuda",
                             .context = r->bench->ctx,
                             .max_slots = 3,
                             .offload = r->groups != 0 ? &offload : NULL,
                             .environment = environment };
    gh_session *session = NULL;
    gh_model *model = NULL;
    gh_error err = { "" };

    for (uint32_t i = 0; i < r->groups; i++) {
        strcat(strcat(modules, i == 0 ? "" : ","), names[i]);
    }
    bench_need_gh(r->bench->gh->model_create(&model, &err), "gh_model_create",
                  &err);
    for (uint32_t i = 0; i < r->layers; i++) {
        bench_need_gh(r->bench->gh->model_add_layer(model, &layer, &err),
                      "gh_model_add_layer", &err);
    }
    desc.model = model;
    bench_need_gh(r->bench->gh->session_open(&desc, &session, &err),
                  "gh_session_open", &err);
    r->bench->gh->model_destroy(model);
    return session;
}

/* ---- a pass --------------------------------------------------------------------- */

/* Calls gh_offload_save or _load, one memset, and the call that ends it. */
static void do_groups(struct run *r, uint32_t layer, bool forward,
                      const gh_decision *d)
{
    const gh_api *gh = r->bench->gh;
    gh_error err = { "" };

    for (uint32_t i = 0; i < r->groups; i++) {
        gh_offload_tensor tensor = { .bytes = r->bytes };
        gh_offload_group group = { .struct_size = sizeof(group),
                                   .layer = layer,
                                   .module = GH_MODULE_NAMED | i,
                                   .n_tensors = 1,
                                   .tensors = &tensor };
        uint64_t begin = bench_now_ns();

        bench_need_gh((forward ? gh->offload_save
                               : gh->offload_load)(r->session, &group, &err),
                      "gh_offload_save or _load", &err);
        r->calls += forward ? (double)(bench_now_ns() - begin) : 0.0;
        if (forward) {
            NEED(r->bench, cuMemsetD32Async,
                 ((CUdeviceptr)(uintptr_t)tensor.address, layer,
                  r->bytes / 4, d->stream));
        }
        begin = bench_now_ns();
        bench_need_gh((forward ? gh->offload_commit : gh->offload_release)(
                          r->session, layer, GH_MODULE_NAMED | i, &err),
                      "gh_offload_commit or _release", &err);
        r->calls += forward ? (double)(bench_now_ns() - begin) : 0.0;
        r->n_calls += forward;
    }
}

static void run_pass(struct run *r, uint32_t layer, gh_direction direction,
                     uint32_t microbatch)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = bench_pass(r->bench, layer, direction, microbatch);
    gh_error err = { "" };
    gh_status status;

    pass.stream = r->streams[microbatch % STREAMS];
    do {
        bench_need_gh(r->bench->gh->layer_enter(r->session, &pass, &d, &err),
                      "gh_layer_enter", &err);
        if (d.action != GH_ACTION_REPLAYED) {
            do_groups(r, layer, direction == GH_FORWARD, &d);
            NEED(r->bench, cuMemsetD32Async,
                 (r->bench->memory + 2048 + 64 * (microbatch % STREAMS), layer,
                  4, d.stream));
        }
        status = r->bench->gh->layer_exit(r->session, &pass, &err);
    } while (status == GH_RERUN);
    bench_need_gh(status, "gh_layer_exit", &err);
}

static void end_step(struct run *r)
{
    gh_error err = { "" };

    bench_need_gh(r->bench->gh->iteration_end(r->session, &err),
                  "gh_iteration_end", &err);
    NEED(r->bench, cuCtxSynchronize, ());
}

static gh_offload_stats stats_of(const struct run *r)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };

    bench_need_gh(
        r->bench->gh->offload_get_stats(r->session, &stats, &err),
        "gh_offload_get_stats", &err);
    return stats;
}

static struct run begin(const struct bench *bench, uint32_t layers,
                        uint32_t groups, uint64_t bytes, bool graphs,
                        bool delay)
{
    struct run r = { .bench = bench, .layers = layers, .groups = groups,
                     .bytes = bytes };

    for (int i = 0; i < STREAMS; i++) {
        NEED(bench, cuStreamCreate, (&r.streams[i], CU_STREAM_NON_BLOCKING));
    }
    r.session = open_session(&r, graphs, delay);
    return r;
}

static void finish(struct run *r)
{
    r->bench->gh->session_close(r->session);
    for (int i = 0; i < STREAMS; i++) {
        NEED(r->bench, cuStreamDestroy, (r->streams[i]));
    }
}

/* ---- a commit ---------------------------------------------------------------------- */

/* Host time of a forward, in the last of a few steps. */
static double forward_ns(struct run *r, int rounds)
{
    double *t = malloc((size_t)rounds * sizeof(*t));
    double median;

    if (t == NULL) {
        bench_die("no memory");
    }
    for (int i = -3; i < rounds; i++) {
        uint64_t start = bench_now_ns();

        for (uint32_t layer = 0; layer < r->layers; layer++) {
            run_pass(r, layer, GH_FORWARD, 0);
        }
        if (i >= 0) {
            t[i] = (double)(bench_now_ns() - start) / r->layers;
        }
        for (uint32_t layer = r->layers; layer-- > 0;) {
            run_pass(r, layer, GH_BACKWARD, 0);
        }
        end_step(r);
        if (i == -1) {
            r->calls = 0.0;
            r->n_calls = 0;
        }
    }
    median = bench_spread(t, (size_t)rounds).median;
    free(t);
    return median;
}

/* Makes a graph with the memset of a pass.  With a group it also has the
 * group's memset, between the wait and the record that a recording puts around
 * it. */
static CUgraphExec bare_graph(const struct bench *bench, CUstream stream,
                              CUevent read, CUevent filled, bool group)
{
    CUgraph graph;
    CUgraphExec exec;

    NEED(bench, cuStreamBeginCapture,
         (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (group) {
        NEED(bench, cuStreamWaitEvent, (stream, read, CU_EVENT_WAIT_EXTERNAL));
        NEED(bench, cuMemsetD32Async, (bench->memory, 0, 16, stream));
        NEED(bench, cuEventRecordWithFlags,
             (filled, stream, CU_EVENT_RECORD_EXTERNAL));
    }
    NEED(bench, cuMemsetD32Async, (bench->memory + 2048, 0, 4, stream));
    NEED(bench, cuStreamEndCapture, (stream, &graph));
    NEED(bench, cuGraphInstantiateWithFlags, (&exec, graph, 0));
    NEED(bench, cuGraphDestroy, (graph));
    return exec;
}

/* Host time of one launch, among LAYERS launches that follow each other. */
static double launch_ns(const struct bench *bench, CUstream stream,
                        CUgraphExec exec)
{
    uint64_t start = bench_now_ns();

    for (int i = 0; i < LAYERS; i++) {
        NEED(bench, cuGraphLaunch, (exec, stream));
    }
    start = bench_now_ns() - start;
    NEED(bench, cuStreamSynchronize, (stream));
    return (double)start / LAYERS;
}

/* How much a group's nodes add to a bare launch. */
static double nodes_ns(const struct bench *bench, int rounds)
{
    double *t = malloc((size_t)rounds * sizeof(*t));
    CUgraphExec without, with;
    CUevent read, filled;
    CUstream stream;
    double median;

    if (t == NULL) {
        bench_die("no memory");
    }
    NEED(bench, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING));
    NEED(bench, cuEventCreate, (&read, CU_EVENT_DISABLE_TIMING));
    NEED(bench, cuEventCreate, (&filled, CU_EVENT_DISABLE_TIMING));
    NEED(bench, cuEventRecord, (read, stream));
    without = bare_graph(bench, stream, read, filled, false);
    with = bare_graph(bench, stream, read, filled, true);
    for (int i = -3; i < rounds; i++) {
        const double bare = launch_ns(bench, stream, without);
        const double ns = launch_ns(bench, stream, with) - bare;

        if (i >= 0) {
            t[i] = ns;
        }
    }
    median = bench_spread(t, (size_t)rounds).median;
    free(t);
    NEED(bench, cuGraphExecDestroy, (without));
    NEED(bench, cuGraphExecDestroy, (with));
    NEED(bench, cuEventDestroy, (read));
    NEED(bench, cuEventDestroy, (filled));
    NEED(bench, cuStreamDestroy, (stream));
    return median;
}

static double clock_ns(void)
{
    const uint64_t start = bench_now_ns();

    for (int i = 0; i < 1000; i++) {
        (void)bench_now_ns();
    }
    return (double)(bench_now_ns() - start) / 1000.0;
}

static void measure_commit(const struct bench *bench, FILE *file, int rounds)
{
    struct run without = begin(bench, LAYERS, 0, 0, true, false);
    struct run with = begin(bench, LAYERS, 1, 65536, true, false);
    struct run eager = begin(bench, LAYERS, 1, 65536, false, false);
    const double bare = forward_ns(&without, rounds);
    const double replay = (forward_ns(&with, rounds) - bare) * LAYERS /
                          (LAYERS - 1); /* the last group stays */
    double calls;

    (void)forward_ns(&eager, rounds);
    calls = eager.calls / (double)eager.n_calls - 2.0 * clock_ns();
    fprintf(file,
            "\"commit\": {\"forward_ns\": %.0f, \"group_in_a_replay_ns\": "
            "%.0f, \"save_and_commit_ns\": %.0f, \"beyond_eager_ns\": %.0f, "
            "\"bare_nodes_ns\": %.0f},\n",
            bare, replay, calls, replay - calls, nodes_ns(bench, rounds));
    finish(&without);
    finish(&with);
    finish(&eager);
}

/* ---- a flush ------------------------------------------------------------------------- */

static double bare_batch_ns(const struct bench *bench, CUstream stream,
                            void *host, CUdeviceptr device, uint64_t bytes)
{
    uint64_t start;

    NEED(bench, cuCtxSynchronize, ());
    start = bench_now_ns();
    for (uint32_t i = 0; i < GROUPS; i++) {
        NEED(bench, cuMemcpyDtoHAsync,
             ((char *)host + i * bytes, device + i * bytes, bytes, stream));
    }
    return (double)(bench_now_ns() - start);
}

static void measure_flush(const struct bench *bench, FILE *file, int rounds)
{
    const uint64_t bytes = 65536;
    struct run r = begin(bench, 7, GROUPS, bytes, true, true);
    double *t[2] = { malloc((size_t)rounds * sizeof(double)),
                     malloc((size_t)rounds * sizeof(double)) };
    gh_offload_stats before, after;
    CUdeviceptr device = 0;
    void *host = NULL;
    gh_error err = { "" };

    if (t[0] == NULL || t[1] == NULL) {
        bench_die("no memory");
    }
    NEED(bench, cuMemAlloc, (&device, GROUPS * bytes));
    NEED(bench, cuMemsetD8Async, (device, 0, GROUPS * bytes, r.streams[0]));
    NEED(bench, cuMemAllocHost, (&host, GROUPS * bytes));
    before = after = stats_of(&r);
    for (int i = -3; i < rounds; i++) {
        uint64_t start;

        run_pass(&r, 0, GH_FORWARD, 0);
        NEED(bench, cuCtxSynchronize, ());
        before = stats_of(&r);
        start = bench_now_ns();
        bench_need_gh(bench->gh->flush_delayed(r.session, &err),
                      "gh_flush_delayed", &err);
        if (i >= 0) {
            t[0][i] = (double)(bench_now_ns() - start);
        }
        after = stats_of(&r);
        for (uint32_t layer = 1; layer < r.layers; layer++) {
            run_pass(&r, layer, GH_FORWARD, 0);
        }
        for (uint32_t layer = r.layers; layer-- > 0;) {
            run_pass(&r, layer, GH_BACKWARD, 0);
        }
        end_step(&r);
        if (i >= 0) {
            t[1][i] = bare_batch_ns(bench, r.streams[0], host, device, bytes);
        }
    }
    fprintf(file, "\"flush\": {\"groups\": %llu, ",
            (unsigned long long)(after.out_copies - before.out_copies));
    {
        const struct spread flush = bench_spread(t[0], (size_t)rounds);
        const struct spread bare = bench_spread(t[1], (size_t)rounds);

        bench_json_spread(file, "flush_ns", flush);
        bench_json_spread(file, "bare_ns", bare);
        fprintf(file, "\"ratio\": %.3f},\n", flush.median / bare.median);
    }
    NEED(bench, cuMemFreeHost, (host));
    NEED(bench, cuMemFree, (device));
    finish(&r);
    free(t[0]);
    free(t[1]);
}

/* ---- both ways at once ------------------------------------------------------------------ */

/* One microbatch comes back on one stream while the next goes out on the other.
 * Returns the nanoseconds of only that. */
static double both_ways_ns(struct run *r)
{
    const uint32_t n = r->layers;
    uint64_t start;

    for (uint32_t layer = 0; layer < n; layer++) {
        run_pass(r, layer, GH_FORWARD, 0);
    }
    NEED(r->bench, cuCtxSynchronize, ());
    start = bench_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        run_pass(r, n - 1 - i, GH_BACKWARD, 0);
        run_pass(r, i, GH_FORWARD, 1);
    }
    NEED(r->bench, cuCtxSynchronize, ());
    start = bench_now_ns() - start;
    for (uint32_t layer = n; layer-- > 0;) {
        run_pass(r, layer, GH_BACKWARD, 1);
    }
    end_step(r);
    return (double)start;
}

/* Copies the same groups by bare copies. */
static double bare_ways_ns(const struct run *r, void *host, CUdeviceptr device)
{
    const uint64_t half = 2 * r->bytes;
    uint64_t start;

    NEED(r->bench, cuCtxSynchronize, ());
    start = bench_now_ns();
    for (uint32_t i = 0; i + 1 < r->layers; i++) {
        char *at = (char *)host + (i % 2) * r->bytes;

        NEED(r->bench, cuMemcpyDtoHAsync,
             (at, device + (i % 2) * r->bytes, r->bytes, r->streams[0]));
        NEED(r->bench, cuMemcpyHtoDAsync,
             (device + half + (i % 2) * r->bytes, at + half, r->bytes,
              r->streams[1]));
    }
    NEED(r->bench, cuCtxSynchronize, ());
    return (double)(bench_now_ns() - start);
}

static void measure_both_ways(const struct bench *bench, FILE *file, int rounds)
{
    const uint64_t bytes = (uint64_t)(bench->options.soft ? 4096 : 32 << 20);
    struct run r = begin(bench, 2 * LAYERS, 1, bytes, true, false);
    double *t[2] = { malloc((size_t)rounds * sizeof(double)),
                     malloc((size_t)rounds * sizeof(double)) };
    struct spread with, bare;
    CUdeviceptr device = 0;
    void *host = NULL;

    if (t[0] == NULL || t[1] == NULL) {
        bench_die("no memory");
    }
    NEED(bench, cuMemAlloc, (&device, 4 * bytes));
    NEED(bench, cuMemsetD8Async, (device, 0, 4 * bytes, r.streams[0]));
    NEED(bench, cuMemAllocHost, (&host, 4 * bytes));
    memset(host, 1, 4 * bytes);
    for (int i = -3; i < rounds; i++) {
        const double ours = both_ways_ns(&r);
        const double theirs = bare_ways_ns(&r, host, device);

        t[0][i < 0 ? 0 : i] = ours;
        t[1][i < 0 ? 0 : i] = theirs;
    }
    with = bench_spread(t[0], (size_t)rounds);
    bare = bench_spread(t[1], (size_t)rounds);
    fprintf(file, "\"both_ways\": {\"group_bytes\": %llu, ",
            (unsigned long long)bytes);
    bench_json_spread(file, "with_ns", with);
    bench_json_spread(file, "bare_ns", bare);
    fprintf(file, "\"bare_over_with\": %.3f}\n", bare.median / with.median);
    NEED(bench, cuMemFreeHost, (host));
    NEED(bench, cuMemFree, (device));
    finish(&r);
    free(t[0]);
    free(t[1]);
}

int main(int argc, char **argv)
{
    const struct bench_options options = bench_parse(
        argc, argv, "Measures commits, flushes and copies both ways.");
    const int rounds = options.rounds != 0 ? options.rounds : ROUNDS;
    struct bench bench;
    FILE *file;

    bench_open(&bench, &options);
    file = bench_json_begin(&bench, "offload_cost");
    measure_commit(&bench, file, rounds);
    measure_flush(&bench, file, rounds);
    measure_both_ways(&bench, file, rounds);
    bench_json_end(&bench, file);
    bench_close(&bench);
    return 0;
}
