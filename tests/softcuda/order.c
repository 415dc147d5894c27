/* A seed chooses among the legal orders, and never leaves them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

enum {
    SEEDS = 64
};

/* Two writers, one word; returns who was last. */
static uint32_t two_writers(bool wait)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    if (wait) {
        drv.cuStreamWaitEvent(other, event, 0);
    }
    launch_store(other, word(0), 2);
    drv.cuEventDestroy(event);
    return word_at(word(0));
}

static void test_unordered_writers(void)
{
    int last[3] = { 0 };

    for (int seed = 1; seed <= SEEDS; seed++) {
        configure("SEED=%d RACES=0", seed);
        last[two_writers(false) % 3]++;
    }
    diag("first %d, second %d", last[1], last[2]);
    ok(last[1] > SEEDS / 8 && last[2] > SEEDS / 8,
       "unordered writers end in either order, by seed");
    ok(last[0] == 0, "and in no other way");
}

static void test_ordered_writers(void)
{
    int wrong = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        configure("SEED=%d RACES=0", seed);
        wrong += two_writers(true) != 2;
    }
    is_int(wrong, 0, "a wait is kept by every seed");
}

static void test_seed_zero_is_issue_order(void)
{
    int wrong = 0;

    configure("SEED=0 RACES=0");
    for (int i = 0; i < SEEDS; i++) {
        wrong += two_writers(false) != 2;
    }
    is_int(wrong, 0, "seed 0 runs in the order of issue");
    launch_store(side, word(0), 1);
    is_int(counts().pending, 0, "seed 0 leaves nothing pending");
}

/* Thirty words, three streams: a fingerprint of an order. */
static uint64_t fingerprint(int seed)
{
    CUstream streams[3] = { side, other, blocking };
    uint64_t hash = 0;

    configure("SEED=%d RACES=0", seed);
    for (uint32_t i = 0; i < 90; i++) {
        launch_store(streams[i % 3], word(i / 3), i);
    }
    for (uint32_t i = 0; i < 30; i++) {
        hash = hash * 31 + word_at(word(i));
    }
    return hash;
}

static void test_a_seed_is_reproducible(void)
{
    int same = 0, different = 0;

    for (int seed = 1; seed <= 10; seed++) {
        uint64_t first = fingerprint(seed);

        same += fingerprint(seed) == first;
        different += fingerprint(seed + 100) != first;
    }
    is_int(same, 10, "the same seed gives the same order");
    ok(different >= 8, "other seeds give other orders");
}

/* Branches of a graph are unordered; a missing join shows, too. */
static void test_branches_of_a_graph(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    int last[3] = { 0 };
    CUgraph graph;
    CUgraphExec exec;

    begin(side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(side, word(40), 1);
    launch_store(other, word(40), 2);
    drv.cuEventRecord(event, other);
    drv.cuStreamWaitEvent(side, event, 0);
    graph = end_graph(side);
    exec = instantiate(graph);
    for (int seed = 1; seed <= SEEDS; seed++) {
        configure("SEED=%d RACES=0", seed);
        drv.cuGraphLaunch(exec, side);
        last[word_at(word(40)) % 3]++;
    }
    ok(last[1] > SEEDS / 8 && last[2] > SEEDS / 8 && last[0] == 0,
       "branches of a graph end in either order, by seed");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuEventDestroy(event);
}

static void test_work_piles_up_and_stays_bounded(void)
{
    uint64_t most = 0;
    int waiting = 0;

    for (int seed = 1; seed <= 16; seed++) {
        configure("SEED=%d RACES=0", seed);
        launch_store(side, word(0), 1);
        waiting += drv.cuStreamQuery(side) == CUDA_ERROR_NOT_READY ||
                   counts().pending != 0;
        for (int i = 0; i < 5000; i++) {
            launch_store(i % 2 ? side : other, word(i % 2), 1);
        }
        if (counts().pending > most) {
            most = counts().pending;
        }
        drv.cuCtxSynchronize();
        waiting += counts().pending != 0 ? 1000 : 0;
    }
    ok(most > 100, "some seeds let work pile up");
    ok(most < 4096, "no seed lets it pile up for ever");
    ok(waiting < 1000, "a synchronized context has nothing pending");
}

static void test_polling_makes_progress(void)
{
    int stuck = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
        int polls = 0;

        configure("SEED=%d RACES=0", seed);
        for (int i = 0; i < 50; i++) {
            launch_store(side, word(0), 1);
        }
        drv.cuEventRecord(event, side);
        while (drv.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            polls++;
        }
        stuck += polls > 100;
        drv.cuEventDestroy(event);
    }
    is_int(stuck, 0, "an event that is polled is reached");
}

/* A query issues nothing: each one takes a step, so that fifty operations are
 * over after fifty, and streams have no order that they have not been given. */
static void test_polling_the_legacy_stream(void)
{
    int stuck = 0, grown = 0, missed = 0, waited = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        uint64_t before;
        int polls = 0;

        configure("SEED=%d RACES=0", seed);
        for (int i = 0; i < 25; i++) {
            launch_store(blocking, word(0), 1);
            launch_store(NULL, word(1), 1);
        }
        do {
            before = counts().pending;
        } while (drv.cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY &&
                 (grown += counts().pending >= before, ++polls < 100));
        stuck += polls > 50;

        configure("SEED=%d", seed);
        launch_store(blocking, word(0), 1);
        launch_store(blocking, word(2), 1);
        if (drv.cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY) {
            launch_store(CU_STREAM_PER_THREAD, word(0), 2);
            drv.cuCtxSynchronize();
            waited++;
            missed += races() != 1;
        }
    }
    is_int(stuck, 0, "the legacy stream that is polled is reached");
    is_int(grown, 0, "each time there is less to do");
    ok(waited > SEEDS / 8, "%d polls of other work find some of it", waited);
    is_int(missed, 0, "and none of them orders what comes next");
}

static bool poll_until_done(void)
{
    int polls = 0;

    while (drv.cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY && ++polls < 100) {
    }
    return polls < 100;
}

/* The streams that block on it are waited for, and no others. */
static void wait_for_the_legacy_stream(bool by_polling)
{
    const char *how = by_polling ? "polling" : "synchronizing";
    int left = 0, missing = 0, wrong = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        configure("SEED=%d", seed);
        launch_store(blocking, word(0), 7);
        launch_store(side, word(1), 1);
        if (by_polling) {
            missing += !poll_until_done();
        } else {
            drv.cuStreamSynchronize(NULL);
        }
        left += counts().pending != 0;
        missing += *(uint32_t *)(uintptr_t)word(0) != 7;
        launch_store(other, word(0), 1);
        drv.cuCtxSynchronize();
        wrong += races() != 0;
    }
    is_int(missing, 0, "%s the legacy stream ends blocking ones", how);
    is_int(wrong, 0, "and what comes after %s is in order", how);
    ok(left > 4, "%s may leave other streams behind", how);
}

/* A stream's synchronize leaves the others alone, for some seed. */
static void test_synchronizing_runs_what_is_needed(void)
{
    int left = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        configure("SEED=%d RACES=0", seed);
        launch_store(other, word(1), 1);
        launch_store(side, word(0), 1);
        drv.cuStreamSynchronize(side);
        left += counts().pending != 0;
        drv.cuCtxSynchronize();
    }
    ok(left > 4, "a synchronize may leave other streams behind");
}

/* What the host hands over or gives away early must not be missed later. */
static void test_nothing_is_lost(void)
{
    int source = 0, destination = 0, destroyed = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
        uint32_t value = 1, back = 0;

        configure("SEED=%d RACES=0", seed);
        drv.cuMemcpyHtoDAsync(word(0), &value, WORD, side);
        value = 2;
        source += word_at(word(0)) != 1;
        launch_store(side, word(0), 3);
        drv.cuMemcpyDtoHAsync(&back, word(0), WORD, side);
        destination += back != 3;
        launch_store(stream, word(1), (uint32_t)seed);
        drv.cuStreamDestroy(stream);
        destroyed += word_at(word(1)) != (uint32_t)seed;
    }
    is_int(source, 0, "a pageable source is read at the call by every seed");
    is_int(destination, 0, "a pageable destination is filled by every seed");
    is_int(destroyed, 0, "a destroyed stream's work is done by every seed");
}

static void lock_free(void *user)
{
    *(int *)user = drv.cuStreamQuery(side);
}

static void test_host_functions_may_not_call(void)
{
    int code = -1;

    configure("SEED=0");
    drv.cuLaunchHostFunc(side, lock_free, &code);
    is_int(code, -1, "a host function does not run inside its launch");
    drv.cuStreamSynchronize(side);
    is_int(code, 800, "a host function may not call the driver");
}

static void test_new_memory_depends_on_the_seed(void)
{
    uint32_t values[2];

    for (int i = 0; i < 2; i++) {
        CUdeviceptr address = 0;

        configure("SEED=%d UNWRITTEN=0", 5 + i);
        drv.cuMemAlloc(&address, 64);
        values[i] = word_at(address);
        drv.cuMemFree(address);
    }
    ok(values[0] != values[1],
       "reading memory never written differs from seed to seed");
}

/* Priorities choose among what is ready; here they are only counted. */
static uint64_t prioritized(CUgraphExec exec, CUstream stream)
{
    const uint64_t before = counts().prioritized;

    drv.cuCtxSynchronize(); /* what was launched before writes the same */
    drv.cuGraphLaunch(exec, stream);
    return counts().prioritized - before;
}

static void test_priorities(void)
{
    CUstream urgent = NULL;
    CUgraphExec own = NULL, streams = NULL;
    CUgraph graph;

    configure("SEED=0");
    drv.cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -3);
    launch_store(side, word(0), 1);
    is_int(counts().prioritized, 0,
           "a kernel of a plain stream has no "
           "priority");
    launch_store(urgent, word(1), 1);
    drv.cuMemsetD32Async(word(1), 0, 1, urgent);
    is_int(counts().prioritized, 1, "one of a prioritized stream has it");

    begin(urgent);
    launch_store(urgent, word(1), 2);
    launch_store(urgent, word(1), 3);
    graph = end_graph(urgent);
    is_int(counts().prioritized, 1, "nothing has run that was captured");
    drv.cuGraphInstantiateWithFlags(
        &own, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    drv.cuGraphInstantiateWithFlags(&streams, graph, 0);
    is_int(prioritized(own, side), 2,
           "nodes keep the priorities that they "
           "were captured at, when asked to");
    is_int(prioritized(streams, side), 0, "and have those of the stream else");
    is_int(prioritized(streams, urgent), 2, "of whichever it is");
    drv.cuGraphDestroy(graph);

    begin(side);
    launch_store(side, word(1), 4);
    graph = end_graph(side);
    drv.cuGraphExecDestroy(own);
    drv.cuGraphInstantiateWithFlags(
        &own, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    is_int(prioritized(own, urgent), 0,
           "a plain node stays one on a prioritized stream");
    drv.cuGraphDestroy(graph);
    drv.cuGraphExecDestroy(own);
    drv.cuGraphExecDestroy(streams);
    drv.cuCtxSynchronize();
    drv.cuStreamDestroy(urgent);
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    test_unordered_writers();
    test_ordered_writers();
    test_seed_zero_is_issue_order();
    test_a_seed_is_reproducible();
    test_branches_of_a_graph();
    test_work_piles_up_and_stays_bounded();
    test_polling_makes_progress();
    test_polling_the_legacy_stream();
    wait_for_the_legacy_stream(true);
    wait_for_the_legacy_stream(false);
    test_synchronizing_runs_what_is_needed();
    test_nothing_is_lost();
    test_host_functions_may_not_call();
    test_new_memory_depends_on_the_seed();
    test_priorities();
    contract_close();
    return done_testing();
}
