/*
 * record_cost.c - what a recording costs, in time and in device memory.
 *
 * Time: a pass recorded through the hooks, from enter to exit, is compared
 * with bare capture + instantiate + upload of the same kernels; the two take
 * turns.  Exit also launches what was recorded, so the bare side with a launch
 * is reported too.
 *
 * Memory: cuMemGetInfo before and after a few hundred recordings, for each
 * pass, compared with as many bare execs.  A driver keeps the memory of
 * destroyed graphs, so each of these measurements has its own process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

/* How many passes the memory is measured with.  The driver hands memory out in
 * pieces of megabytes, so a few graphs would show as nothing or as one
 * piece. */
#define HELD 400u

struct bare_times {
    double capture, instantiate, upload, launch;
};

static CUgraphExec bare(const struct bench *bench, uint32_t kernels,
                        struct bare_times *times)
{
    uint64_t begin = bench_now_ns(), captured, instantiated, uploaded;
    CUgraph graph;
    CUgraphExec exec;

    NEED(bench, cuStreamBeginCapture,
         (bench->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    bench_launch(bench, kernels, bench->stream);
    NEED(bench, cuStreamEndCapture, (bench->stream, &graph));
    captured = bench_now_ns();
    NEED(bench, cuGraphInstantiateWithFlags,
         (&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    instantiated = bench_now_ns();
    NEED(bench, cuGraphUpload, (exec, bench->stream));
    uploaded = bench_now_ns();
    NEED(bench, cuGraphLaunch, (exec, bench->stream));
    times->launch = (double)(bench_now_ns() - uploaded);
    times->upload = (double)(uploaded - instantiated);
    times->instantiate = (double)(instantiated - captured);
    times->capture = (double)(captured - begin);
    NEED(bench, cuGraphDestroy, (graph));
    return exec;
}

static double hooked(const struct bench *bench, gh_session *session,
                     uint32_t layer, uint32_t kernels)
{
    gh_pass pass = bench_pass(bench, layer, GH_FORWARD, 0);
    uint64_t begin = bench_now_ns();
    gh_action action = bench_run_pass(bench, session, &pass, kernels);
    double ns = (double)(bench_now_ns() - begin);

    if (action != GH_ACTION_RECORD) {
        bench_die("a pass that was to be recorded got action %u", action);
    }
    return ns;
}

static void measure_time(const struct bench *bench, FILE *file,
                         uint32_t kernels, uint32_t rounds)
{
    const uint32_t discarded = 5; /* first use of everything */
    const uint32_t n = rounds + discarded;
    double *samples = malloc(sizeof(*samples) * 7 * n);
    double *hooks = samples, *sum = samples + n, *sum_launch = samples + 2 * n;
    double *each[4];
    CUgraphExec *execs = malloc(sizeof(*execs) * n);
    gh_session *session = bench_session(bench, n, 1);
    static const char *const names[] = { "capture_ns", "instantiate_ns",
                                         "upload_ns", "launch_ns" };
    struct spread hooks_ns, sum_ns, sum_launch_ns;

    if (samples == NULL || execs == NULL) {
        bench_die("no memory for %u samples", n);
    }
    for (uint32_t i = 0; i < 4; i++) {
        each[i] = samples + (3 + i) * n;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct bare_times t = { 0 };

        for (uint32_t turn = 0; turn < 2; turn++) {
            bench_sync(bench);
            if ((i + turn) % 2 == 0) {
                execs[i] = bare(bench, kernels, &t);
            } else {
                hooks[i] = hooked(bench, session, i, kernels);
            }
        }
        each[0][i] = t.capture;
        each[1][i] = t.instantiate;
        each[2][i] = t.upload;
        each[3][i] = t.launch;
        sum[i] = t.capture + t.instantiate + t.upload;
        sum_launch[i] = sum[i] + t.launch;
    }
    bench_sync(bench);

    hooks_ns = bench_spread(hooks + discarded, rounds);
    sum_ns = bench_spread(sum + discarded, rounds);
    sum_launch_ns = bench_spread(sum_launch + discarded, rounds);
    fprintf(file, "  {\"kernels\": %u, ", kernels);
    bench_json_spread(file, "hooks_ns", hooks_ns);
    bench_json_spread(file, "bare_ns", sum_ns);
    bench_json_spread(file, "bare_and_launch_ns", sum_launch_ns);
    for (uint32_t i = 0; i < 4; i++) {
        bench_json_spread(file, names[i],
                          bench_spread(each[i] + discarded, rounds));
    }
    fprintf(file, "\"ratio\": %.4f, \"ratio_with_launch\": %.4f",
            hooks_ns.median / sum_ns.median,
            hooks_ns.median / sum_launch_ns.median);

    bench->gh->session_close(session);
    for (uint32_t i = 0; i < n; i++) {
        NEED(bench, cuGraphExecDestroy, (execs[i]));
    }
    free(execs);
    free(samples);
}

static size_t free_bytes(const struct bench *bench)
{
    size_t free_now = 0, total;

    bench_sync(bench);
    NEED(bench, cuMemGetInfo, (&free_now, &total));
    return free_now;
}

/* Device bytes for each of HELD passes or execs. */
static double memory_of(const struct bench_options *options, uint32_t kernels,
                        bool hooks)
{
    struct bare_times ignored;
    struct bench bench;
    gh_session *session;
    size_t before, after;

    bench_open(&bench, options);
    session = bench_session(&bench, HELD + 1, 1);
    if (hooks) {
        hooked(&bench, session, HELD, kernels);
    } else {
        bare(&bench, kernels, &ignored);
    }
    before = free_bytes(&bench);
    for (uint32_t i = 0; i < HELD; i++) {
        if (hooks) {
            hooked(&bench, session, i, kernels);
        } else {
            bare(&bench, kernels, &ignored);
        }
    }
    after = free_bytes(&bench);
    return ((double)before - (double)after) / HELD;
}

/* What one process records and keeps. */
struct holding {
    const struct bench_options *options;
    uint32_t kernels;
    bool hooks;
};

static void hold(const void *what, void *bytes)
{
    const struct holding *h = what;

    *(double *)bytes = memory_of(h->options, h->kernels, h->hooks);
}

static double memory_apart(const struct bench_options *options,
                           uint32_t kernels, bool hooks)
{
    const struct holding holding = { options, kernels, hooks };
    double bytes = 0;

    bench_apart(hold, &holding, &bytes, sizeof(bytes));
    return bytes;
}

int main(int argc, char **argv)
{
    static const uint32_t kernels[] = { 1, 30, 300 };
    const struct bench_options options =
        bench_parse(argc, argv,
                    "Measures a recording against bare capture, "
                    "instantiate and upload.");
    double memory[3][2];
    struct bench bench;
    FILE *file;

    for (int i = 0; i < 3; i++) {
        for (int hooks = 0; hooks < 2; hooks++) {
            memory[i][hooks] = memory_apart(&options, kernels[i], hooks);
        }
    }

    bench_open(&bench, &options);
    file = bench_json_begin(&bench, "record_cost");
    fprintf(file, "\"held_for_memory\": %u, \"cases\": [\n", HELD);
    for (int i = 0; i < 3; i++) {
        measure_time(&bench, file, kernels[i],
                     options.rounds != 0 ? (uint32_t)options.rounds : 200);
        fprintf(file,
                ", \"device_bytes_per_pass\": %.0f, "
                "\"device_bytes_per_bare_exec\": %.0f}%s\n",
                memory[i][1], memory[i][0], i < 2 ? "," : "]");
    }
    bench_json_end(&bench, file);
    bench_close(&bench);
    return 0;
}
