/*
 * hook_overhead.c - what a replayed pass costs over a bare graph launch.
 *
 * A block is one microbatch through 16 layers, forward and backward: 32
 * passes, each a graph of 1, 30 or 300 kernels.  The bare block launches 32
 * execs that were captured from the same kernels.  Bare and hooked blocks
 * take turns, so that clocks and caches are the same for both; the order
 * within a turn changes too.
 *
 *     back to back  the 32 launches of a block follow each other
 *     idle          every launch finds an empty stream
 *
 * With --callgrind nothing is timed: `--passes` passes are captured, and then
 * one of them is replayed 1,024 times through bench_replay(), or all of them
 * with --whole-steps, for hook_instructions.sh to count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include <stdlib.h>

#define LAYERS 16u
#define BLOCK (2 * LAYERS)
#define MOST_SLOTS 64u

static void must_replay(gh_action action)
{
    if (action != GH_ACTION_REPLAYED) {
        bench_die("a pass that was to be replayed got action %u", action);
    }
}

static void end_step(const struct bench *bench, gh_session *session)
{
    gh_error err = { "" };

    bench_need_gh(bench->gh->iteration_end(session, &err), "gh_iteration_end",
                  &err);
}

/* Makes the passes of one microbatch, in the order of a step. */
static void make_block(const struct bench *bench, gh_pass *passes)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        passes[i] = bench_pass(bench, i, GH_FORWARD, 0);
        passes[BLOCK - 1 - i] = bench_pass(bench, i, GH_BACKWARD, 0);
    }
}

static double hooked_block(const struct bench *bench, gh_session *session,
                           gh_pass *passes, bool idle, double *each)
{
    gh_decision decision = { .struct_size = sizeof(decision) };
    const gh_api *gh = bench->gh;
    gh_error err = { "" };
    uint64_t begin = bench_now_ns();

    for (uint32_t i = 0; i < BLOCK; i++) {
        if (idle) {
            bench_sync(bench);
            begin = bench_now_ns();
        }
        bench_need_gh(gh->layer_enter(session, &passes[i], &decision, &err),
                      "gh_layer_enter", &err);
        bench_need_gh(gh->layer_exit(session, &passes[i], &err),
                      "gh_layer_exit", &err);
        if (idle) {
            each[i] = (double)(bench_now_ns() - begin);
        }
        must_replay(decision.action);
    }
    return (double)(bench_now_ns() - begin) / BLOCK;
}

static double bare_block(const struct bench *bench, CUgraphExec *execs,
                         bool idle, double *each)
{
    uint64_t begin = bench_now_ns();

    for (uint32_t i = 0; i < BLOCK; i++) {
        if (idle) {
            bench_sync(bench);
            begin = bench_now_ns();
        }
        NEED(bench, cuGraphLaunch, (execs[i], bench->stream));
        if (idle) {
            each[i] = (double)(bench_now_ns() - begin);
        }
    }
    return (double)(bench_now_ns() - begin) / BLOCK;
}

static void measure(const struct bench *bench, FILE *file, uint32_t kernels,
                    bool idle, int rounds)
{
    const size_t n = (size_t)rounds * (idle ? BLOCK : 1);
    double *bare = malloc(n * sizeof(*bare));
    double *hooks = malloc(n * sizeof(*hooks));
    gh_session *session = bench_session(bench, LAYERS, 1);
    CUgraphExec execs[BLOCK];
    gh_pass passes[BLOCK];
    struct spread bare_ns, hooks_ns;
    double t;

    if (bare == NULL || hooks == NULL) {
        bench_die("no memory for %zu samples", n);
    }
    make_block(bench, passes);
    for (uint32_t i = 0; i < BLOCK; i++) {
        execs[i] = bench_exec(bench, kernels);
        bench_run_pass(bench, session, &passes[i], kernels);
    }
    end_step(bench, session);

    for (int round = -rounds / 10 - 1; round < rounds; round++) {
        /* The first tenth of the rounds is discarded: it is written to the
         * first place and overwritten. */
        size_t at = (size_t)(round < 0 ? 0 : round) * (idle ? BLOCK : 1);

        for (int turn = 0; turn < 2; turn++) {
            bench_sync(bench);
            if ((round + turn) % 2 == 0) {
                t = bare_block(bench, execs, idle, bare + at);
                if (!idle) {
                    bare[at] = t;
                }
            } else {
                t = hooked_block(bench, session, passes, idle, hooks + at);
                if (!idle) {
                    hooks[at] = t;
                }
                end_step(bench, session);
            }
        }
    }
    bench_sync(bench);

    bare_ns = bench_spread(bare, n);
    hooks_ns = bench_spread(hooks, n);
    fprintf(file, "  {\"kernels\": %u, \"launches\": \"%s\", ", kernels,
            idle ? "idle" : "back to back");
    bench_json_spread(file, "bare_ns", bare_ns);
    bench_json_spread(file, "hooks_ns", hooks_ns);
    fprintf(file, "\"added_ns\": %.1f, \"ratio\": %.4f}",
            hooks_ns.median - bare_ns.median, hooks_ns.median / bare_ns.median);

    bench->gh->session_close(session);
    for (uint32_t i = 0; i < BLOCK; i++) {
        NEED(bench, cuGraphExecDestroy, (execs[i]));
    }
    free(bare);
    free(hooks);
}

/* Runs one step.  Its passes are recorded, or they are replayed and counted. */
static int counted_step(const struct bench *bench, gh_session *session,
                        uint32_t layers, uint32_t slots, bool record)
{
    gh_decision decision = { .struct_size = sizeof(decision) };
    int n = 0;

    for (uint32_t i = 0; i < 2 * layers * slots; i++) {
        bool forward = i < layers * slots;
        uint32_t layer = i / slots % layers;
        gh_pass pass =
            bench_pass(bench, forward ? layer : layers - 1 - layer,
                       forward ? GH_FORWARD : GH_BACKWARD, i % slots);

        if (record) {
            bench_run_pass(bench, session, &pass, 1);
        } else {
            bench_replay(bench->gh, session, &pass, &decision);
            must_replay(decision.action);
        }
        n++;
    }
    bench_sync(bench);
    end_step(bench, session);
    return n;
}

/* Counts the first forward of a step, which costs most because it also takes a
 * slot.  The library times one pass in 64.  In 1,024 steps there are as many
 * timed passes wherever the first of them is. */
static int counted_firsts(const struct bench *bench, gh_session *session)
{
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_pass pass = bench_pass(bench, 0, GH_FORWARD, 0);

    for (int i = 0; i < 1024; i++) {
        bench_replay(bench->gh, session, &pass, &decision);
        must_replay(decision.action);
        bench_sync(bench);
        end_step(bench, session);
    }
    return 1024;
}

/* Counts the passes.  One pass is one microbatch forward through one layer;
 * more passes are spread over layers and slots. */
static void count(const struct bench *bench)
{
    const uint32_t wanted = (uint32_t)bench->options.passes;
    const uint32_t slots = wanted < 2 * MOST_SLOTS ? 1 : MOST_SLOTS;
    const uint32_t layers = (wanted + 2 * slots - 1) / (2 * slots);
    gh_session *session = bench_session(bench, layers, slots);
    int n = 0;

    if (wanted == 1) {
        gh_pass pass = bench_pass(bench, 0, GH_FORWARD, 0);

        bench_run_pass(bench, session, &pass, 1);
        end_step(bench, session);
    } else {
        counted_step(bench, session, layers, slots, true);
    }
    if (bench->options.whole_steps) {
        while (n < 1000) {
            n += counted_step(bench, session, layers, slots, false);
        }
    } else {
        n = counted_firsts(bench, session);
    }
    printf("captured %llu replayed %d\n",
           (unsigned long long)bench_stats(bench, session).recordings, n);
    bench->gh->session_close(session);
}

int main(int argc, char **argv)
{
    static const uint32_t kernels[] = { 1, 30, 300 };
    const struct bench_options options = bench_parse(
        argc, argv, "Measures a replayed pass against a bare graph launch.");
    struct bench bench;
    FILE *file;

    bench_open(&bench, &options);
    if (options.callgrind) {
        count(&bench);
        bench_close(&bench);
        return 0;
    }
    file = bench_json_begin(&bench, "hook_overhead");
    fprintf(file, "\"passes_in_a_block\": %u, \"cases\": [\n", BLOCK);
    for (int i = 0; i < 6; i++) {
        int rounds = options.rounds != 0 ? options.rounds : 400;

        measure(&bench, file, kernels[i / 2], i % 2 == 1, rounds);
        fprintf(file, i < 5 ? ",\n" : "\n]");
    }
    bench_json_end(&bench, file);
    bench_close(&bench);
    return 0;
}
