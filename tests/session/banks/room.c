/*
 * Of more banks than may have graphs, one that is not in flight gives way.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "tap/tap.h"

#include <string.h>

static void test_the_least_recently_used_gives_way(void)
{
    if (!banks_start_three(banks_of_two)) {
        return;
    }
    banks_step(0); /* warmup */
    banks_step(0);
    banks_step(1);
    banks_step(0);
    banks_step(2);
    is_int(toy_bank_stats(&s, 1).evictions, 1, "the one that was used before");
    is_int(toy_bank_stats(&s, 1).graphs, 0, "has no graphs any more");
    is_int(toy_bank_stats(&s, 1).bytes, 0, "and holds no memory");
    is_int(toy_bank_stats(&s, 0).graphs, 4, "the other has kept its own");
    is_int(toy_bank_stats(&s, 2).graphs, 4, "and the new one has some");
    banks_step(0);
    is_int(toy_bank_stats(&s, 0).recordings, 4, "which go on being used");
    banks_step(1);
    is_int(toy_bank_stats(&s, 2).evictions, 1, "then the third gives way");
    is_int(toy_bank_stats(&s, 1).recordings, 8, "to one that is recorded anew");
    toy_end_step(&s);
    is_int(toy_counts(&s).execs, 8, "only graphs of two banks exist");
    is_int(toy_stats(&s).nodes, 2 * 12, "and their nodes are counted");
    banks_finish("least recently used");
}

static void test_none_in_flight_gives_way(void)
{
    if (!banks_start_three(banks_of_two)) {
        return;
    }
    banks_step(0);
    banks_step(0);
    banks_step(1);
    toy_forward_shape(&s, 0, 0);
    toy_forward_shape(&s, 1, 1); /* used later than the first */
    toy_backward(&s, 1);
    toy_forward_shape(&s, 2, 2);
    is_int(toy_bank_stats(&s, 0).evictions, 0,
           "the least recently used is in flight, and stays");
    is_int(toy_bank_stats(&s, 1).evictions, 1, "the one after it goes");
    toy_backward(&s, 0);
    toy_backward(&s, 2);
    toy_end_step(&s);
    banks_finish("in flight");
}

static void test_all_in_flight(void)
{
    if (!banks_start_three(banks_of_one)) {
        return;
    }
    banks_step(0);
    banks_step(0);
    toy_forward_shape(&s, 0, 0);
    toy_forward_shape(&s, 1, 1);
    is_int(s.decision.action, GH_ACTION_RUN, "where every bank is in flight");
    is_int(s.decision.reason, GH_REASON_BANKS, "another one runs eagerly");
    ok(s.decision.slot != GH_SLOT_NONE, "in a slot");
    toy_backward(&s, 0);
    toy_backward(&s, 1);
    is_int(s.decision.action, GH_ACTION_RECORD,
           "and is recorded once the others have landed");
    toy_end_step(&s);
    banks_step(1);
    is_int(toy_bank_stats(&s, 1).graphs, 2 + 4, "in every slot that it uses");
    is_int(toy_bank_stats(&s, 0).evictions, 1, "after the other has gone");
    banks_finish("all in flight");
}

/* A step that makes room waits for nothing, and what still runs is left to
 * run. */
static void test_giving_way_does_not_wait(void)
{
    softcuda_calls_fn *calls;
    uint64_t execs;
    uint32_t shape = 1;

    if (!banks_start(&(struct toy_options){ .elems = 512,
                                            .free_running = true,
                                            .environment = banks_of_one })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    calls = (softcuda_calls_fn *)toy_control(&s, "softcuda_calls");
    banks_step(0);
    banks_step(0);
    banks_step(0);
    ok(toy_counts(&s).pending > 0, "graphs still run");
    execs = toy_counts(&s).execs;
    toy_configure(&s, "SEED=3 RACES=1");
    toy_forward_shape(&s, 0, shape);
    is_int(toy_bank_stats(&s, 0).evictions, 1, "when their bank gives way");
    is_int(calls("cuStreamSynchronize") + calls("cuCtxSynchronize") +
               calls("cuMemFree") + calls("cuEventSynchronize"),
           0, "nobody waits for them");
    is_int(toy_counts(&s).execs, execs + 2, "and they are still there");
    toy_backward(&s, 0);
    s.drv.cuCtxSynchronize();
    toy_end_step(&s);
    is_int(toy_counts(&s).execs, 4, "until a step ends after them");
    banks_finish("no wait");
}

/* A step may make room many times over, and does not gather what has run. */
static void test_what_has_run_goes_in_the_step(void)
{
    if (!banks_start_three(banks_of_one)) {
        return;
    }
    banks_step(0);
    banks_step(0);
    for (uint32_t shape = 1; shape < 3; shape++) {
        s.drv.cuCtxSynchronize();
        toy_forward_shape(&s, 0, shape);
        toy_backward(&s, 0);
    }
    is_int(toy_bank_stats(&s, 0).evictions + toy_bank_stats(&s, 1).evictions, 2,
           "two banks have given way in one step");
    is_int(toy_counts(&s).execs, 2 * 4,
           "and of the first, which has run, no graph is left in it");
    toy_end_step(&s);
    banks_finish("goes in the step");
}

static void test_freeze(void)
{
    static const char *const frozen[] = { "GRAPHHOOKS_LOG=off",
                                          "GRAPHHOOKS_FREEZE=2",
                                          "GRAPHHOOKS_MAX_BANKS=1", NULL };

    if (!banks_start_three(frozen)) {
        return;
    }
    banks_step(0);
    banks_step(0);
    banks_step(0);
    banks_step(1);
    is_int(toy_bank_stats(&s, 1).recordings, 0,
           "a frozen session records none");
    is_int(toy_eager(&s, GH_REASON_FROZEN), 4, "it says why");
    is_int(toy_bank_stats(&s, 0).evictions, 0, "and no bank gives way for it");
    banks_step(0);
    is_int(toy_bank_stats(&s, 0).replays, 4 * 3, "the first is replayed");
    banks_finish("freeze");
}

/* ---- graphs of the host's own -------------------------------------------- */

static struct {
    uint64_t pending; /* at the last destroy */
    uint32_t destroyed;
} watched;

static gh_status begin(void *user, void *stream)
{
    (void)user;
    return s.drv.cuStreamBeginCapture(
               stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static gh_status end(void *user, void *stream, void **object_p, void **graph_p)
{
    CUgraph graph = NULL;

    (void)user;
    (void)graph_p;
    if (s.drv.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS ||
        s.drv.cuGraphInstantiateWithFlags((CUgraphExec *)object_p, graph, 0) !=
            CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    s.drv.cuGraphDestroy(graph);
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    (void)user;
    (void)exec_p;
    return s.drv.cuGraphLaunch(object, stream) == CUDA_SUCCESS ? GH_OK
                                                               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *object)
{
    (void)user;
    watched.destroyed++;
    watched.pending += toy_counts(&s).pending;
    s.drv.cuGraphExecDestroy(object);
}

static const gh_host_services capturing = { .struct_size = sizeof(capturing),
                                            .capture_begin = begin,
                                            .capture_end = end,
                                            .launch = launch,
                                            .destroy = destroy };

static void test_a_host_destroys_what_no_longer_runs(void)
{
    CUdeviceptr word = 0;

    memset(&watched, 0, sizeof(watched));
    if (!banks_start(&(struct toy_options){ .elems = 512,
                                            .free_running = true,
                                            .host = &capturing,
                                            .environment = banks_of_one })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    banks_step(0);
    s.drv.cuMemAlloc(&word, 4);
    s.drv.cuMemsetD32Async(word, 0, 1, s.side);
    s.drv.cuCtxSynchronize();
    for (uint32_t i = 0; i < TOY_STREAMS; i++) {
        s.drv.cuStreamWaitValue32(s.streams[i], word, 1, 1);
    }
    banks_step(0);
    banks_step(1);
    is_int(toy_bank_stats(&s, 0).evictions, 1,
           "a bank of the host's graphs goes");
    is_int(watched.destroyed, 0, "but not its graphs, which run");
    s.drv.cuMemsetD32Async(word, 1, 1, s.side);
    s.drv.cuCtxSynchronize();
    s.drv.cuMemFree(word);
    toy_end_step(&s);
    is_int(watched.destroyed, 4, "until they have ended");
    is_int(watched.pending, 0, "none is destroyed while anything runs");
    banks_finish("a host's graphs");
}

/* ---- failures ------------------------------------------------------------ */

static void test_a_bank_that_fails_leaves_the_others(void)
{
    uint64_t launched;

    if (!banks_start_three(banks_quiet)) {
        return;
    }
    banks_step(0);
    banks_step(0);
    toy_configure(&s, "SEED=3 RACES=1 FAIL=cuGraphInstantiateWithFlags:1:999");
    banks_step(1);
    is_int(toy_bank_stats(&s, 1).recordings, 3, "one recording fails");
    banks_step(0);
    banks_step(1);
    banks_step(2);
    is_int(toy_eager(&s, GH_REASON_DEVICE), 2, "and its pass is eager");
    is_int(toy_bank_stats(&s, 0).graphs, 4, "the bank before keeps its graphs");
    is_int(toy_bank_stats(&s, 2).graphs, 4, "the bank after gets them all");
    launched = toy_bank_stats(&s, 0).replays;
    toy_configure(&s, "SEED=3 RACES=1 FAIL=cuGraphLaunch:1:999");
    banks_step(0);
    is_int(toy_bank_stats(&s, 0).replays, launched + 3,
           "a launch that fails is none");
    banks_finish("one failure");
}

static void test_what_has_failed_stays_eager(void)
{
    if (!banks_start_three(banks_of_one)) {
        return;
    }
    banks_step(0);
    toy_configure(&s, "SEED=3 RACES=1 FAIL=cuGraphInstantiateWithFlags:1:999");
    banks_step(0);
    banks_step(1);
    banks_step(0);
    is_int(toy_bank_stats(&s, 0).evictions, 1, "a bank gave way and came back");
    is_int(toy_eager(&s, GH_REASON_DEVICE), 2,
           "what has failed in it is not tried again");
    banks_finish("failed before");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_the_least_recently_used_gives_way();
    test_none_in_flight_gives_way();
    test_all_in_flight();
    test_giving_way_does_not_wait();
    test_what_has_run_goes_in_the_step();
    test_freeze();
    test_a_host_destroys_what_no_longer_runs();
    test_a_bank_that_fails_leaves_the_others();
    test_what_has_failed_stays_eager();
    return done_testing();
}
