/* A missing edge is reported, a present one is not, whatever order ran. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <string.h>

static CUevent event, second;

static void fresh(void)
{
    drv.cuCtxSynchronize();
    configure("SEED=0");
}

/* The point: how many races since fresh(). */
static void raced(uint64_t expected, const char *what)
{
    drv.cuCtxSynchronize();
    is_int(races(), expected, "%s %s", what,
           expected != 0 ? "is a race" : "is in order");
    fresh();
}

static void test_two_streams(void)
{
    fresh();
    launch_store(side, word(0), 1);
    launch_store(other, word(0), 2);
    drv.cuCtxSynchronize();
    ok(race(0) != NULL && strstr(race(0), "store on stream") != NULL &&
           strstr(race(0), "bytes 0..4") != NULL &&
           strstr(race(0), " of device allocation ") != NULL,
       "a race names both kernels, their streams and the bytes");
    ok(race(1) == NULL, "there is no text past the last race");
    raced(1, "writing one word from two streams");

    launch_store(side, word(0), 1);
    launch_store(other, word(1), 2);
    raced(0, "writing neighbouring words from two streams");

    launch_store(side, word(0), 1);
    drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, other);
    raced(1, "reading on one stream what another writes");

    drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, side);
    launch_store(other, word(0), 1);
    raced(1, "writing on one stream what another reads");

    drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, side);
    drv.cuMemcpyDtoDAsync(word(2), word(0), WORD, other);
    raced(0, "reading one word from two streams");

    launch_store(side, word(0), 1);
    launch_store(side, word(0), 2);
    launch_add(side, word(0), word(0));
    raced(0, "one stream writing a word again and again");
}

static void test_event_edges(void)
{
    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(0), 2);
    raced(0, "a wait between two writers");

    drv.cuEventRecord(event, side);
    launch_store(side, word(0), 1);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(0), 2);
    raced(1, "an event recorded too early");

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    launch_store(other, word(0), 2);
    drv.cuStreamWaitEvent(other, event, 0);
    raced(1, "a wait that comes too late");

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(blocking, event, 0);
    drv.cuEventRecord(second, blocking);
    drv.cuStreamWaitEvent(other, second, 0);
    launch_store(other, word(0), 2);
    raced(0, "an order that goes through a third stream");

    drv.cuMemcpyDtoDAsync(word(1), word(0), WORD, side);
    drv.cuMemcpyDtoDAsync(word(2), word(0), WORD, blocking);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(0), 2);
    raced(1, "waiting for one of two readers");
}

static void test_host_edges(void)
{
    launch_store(side, word(0), 1);
    drv.cuStreamSynchronize(side);
    launch_store(other, word(0), 2);
    raced(0, "synchronizing the stream in between");

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuEventSynchronize(event);
    launch_store(other, word(0), 2);
    raced(0, "synchronizing an event in between");

    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuEventQuery(event);
    launch_store(other, word(0), 2);
    raced(0, "a query that said done in between");

    launch_store(side, word(0), 1);
    drv.cuCtxSynchronize();
    launch_store(other, word(0), 2);
    raced(0, "synchronizing the context in between");

    drv.cuEventRecord(event, side);
    launch_store(side, word(0), 1);
    drv.cuEventSynchronize(event);
    launch_store(other, word(0), 2);
    raced(1, "synchronizing an event from before");

    launch_store(side, word(0), 1);
    drv.cuStreamSynchronize(blocking);
    launch_store(other, word(0), 2);
    raced(1, "synchronizing another stream");
}

static void test_legacy_edges(void)
{
    launch_store(blocking, word(0), 1);
    launch_store(NULL, word(0), 2);
    launch_store(blocking, word(0), 3);
    raced(0, "a blocking stream beside the legacy stream");

    launch_store(side, word(0), 1);
    launch_store(NULL, word(0), 2);
    raced(1, "a non-blocking stream beside the legacy stream");

    launch_store(NULL, word(0), 2);
    launch_store(side, word(0), 1);
    raced(1, "the legacy stream beside a non-blocking stream");

    launch_store(blocking, word(0), 1);
    launch_store(CU_STREAM_PER_THREAD, word(0), 1);
    raced(1, "two blocking streams with nothing in between");

    launch_store(blocking, word(0), 1);
    launch_store(NULL, word(9), 1);
    launch_store(CU_STREAM_PER_THREAD, word(0), 1);
    raced(0, "two blocking streams with the legacy stream in between");

    launch_store(blocking, word(0), 1);
    drv.cuStreamSynchronize(NULL);
    launch_store(side, word(0), 1);
    raced(0, "synchronizing the legacy stream for a blocking one");
}

static void test_copies(void)
{
    uint32_t value = 1;

    drv.cuMemcpyHtoDAsync(word(0), pinned, WORD, side);
    drv.cuMemcpyDtoHAsync(pinned, word(1), WORD, other);
    drv.cuCtxSynchronize();
    ok(race(0) != NULL && strstr(race(0), " of pinned allocation ") != NULL,
       "a race in pinned memory is called that");
    raced(1, "overwriting pinned memory that a copy reads");

    drv.cuMemcpyHtoD(word(0), &value, WORD);
    launch_store(side, word(0), 1);
    raced(1, "work beside a synchronous copy from pageable memory");

    drv.cuMemcpyHtoD(word(0), pinned, WORD);
    launch_store(side, word(0), 1);
    raced(0, "work after a synchronous copy from pinned memory");

    drv.cuMemcpyDtoH(&value, word(0), WORD);
    launch_store(side, word(0), 1);
    raced(0, "work after a synchronous copy to the host");

    drv.cuMemsetD8Async(word(0), 1, 16 * WORD, side);
    launch_store(other, word(15), 1);
    raced(1, "the last word of a memset");
    drv.cuMemsetD8Async(word(0), 1, 16 * WORD, side);
    launch_store(other, word(16), 1);
    raced(0, "the word after a memset");
}

static CUgraphExec exec_of(CUstream stream)
{
    CUgraph graph = end_graph(stream);
    CUgraphExec exec = instantiate(graph);

    drv.cuGraphDestroy(graph);
    return exec;
}

static CUgraphExec forked(bool join_first)
{
    begin(side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(0), 1);
    drv.cuEventRecord(second, other);
    if (join_first) {
        drv.cuStreamWaitEvent(side, second, 0);
    }
    launch_add(side, word(1), word(0));
    if (!join_first) {
        drv.cuStreamWaitEvent(side, second, 0);
    }
    return exec_of(side);
}

static void test_inside_a_graph(void)
{
    CUgraphExec good = forked(true), bad = forked(false);

    fresh();
    drv.cuGraphLaunch(good, side);
    drv.cuGraphLaunch(good, side);
    raced(0, "a graph whose branch joins before its consumer");
    drv.cuGraphLaunch(bad, side);
    drv.cuCtxSynchronize();
    ok(race(0) != NULL && strstr(race(0), "in graph") != NULL &&
           strstr(race(0), "node") != NULL,
       "a race in a graph names the graph and the node");
    raced(1, "a graph whose branch joins after its consumer");
    drv.cuGraphExecDestroy(good);
    drv.cuGraphExecDestroy(bad);
}

/* The origin forks and does nothing until its branch comes back, which has
 * waited for a third stream meanwhile. */
static void test_branch_that_comes_back(void)
{
    CUgraphExec exec;
    CUstream third;

    drv.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING);
    begin(side);
    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(1), 1);
    drv.cuStreamWaitEvent(third, event, 0);
    launch_store(third, word(2), 1);
    drv.cuEventRecord(second, third);
    drv.cuStreamWaitEvent(other, second, 0);
    launch_store(other, word(1), 2);
    drv.cuEventRecord(second, other);
    drv.cuStreamWaitEvent(side, second, 0);
    launch_add(side, word(3), word(2));
    exec = exec_of(side);
    fresh();

    drv.cuGraphLaunch(exec, side);
    raced(0, "a branch that comes back with what it has waited for");
    drv.cuGraphExecDestroy(exec);
    drv.cuStreamDestroy(third);
}

static void test_around_a_graph(void)
{
    CUgraphExec exec;

    begin(side);
    launch_add(side, word(1), word(0));
    exec = exec_of(side);
    fresh();

    launch_store(side, word(0), 1);
    drv.cuGraphLaunch(exec, side);
    launch_store(side, word(1), 1);
    raced(0, "work before and after a launch on its stream");

    launch_store(other, word(0), 1);
    drv.cuGraphLaunch(exec, side);
    raced(1, "a launch that does not wait for its input");

    drv.cuGraphLaunch(exec, side);
    launch_store(other, word(1), 1);
    raced(1, "work that does not wait for a launch");

    drv.cuGraphLaunch(exec, side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    launch_store(other, word(1), 1);
    raced(0, "work that waits for a launch");

    drv.cuGraphLaunch(exec, side);
    drv.cuGraphLaunch(exec, other);
    raced(0, "one exec on two streams");
    drv.cuGraphExecDestroy(exec);
}

/* The branch's write must be known to those who come after the launch. */
static void test_branches_end_with_the_launch(void)
{
    CUgraphExec exec = forked(true);

    fresh();
    drv.cuGraphLaunch(exec, side);
    launch_store(side, word(0), 3);
    raced(0, "writing after a launch what its branch wrote");
    drv.cuGraphLaunch(exec, side);
    launch_store(other, word(0), 3);
    raced(2, "writing beside a launch what is written and read in it");
    drv.cuGraphExecDestroy(exec);
}

static void test_external_edges(void)
{
    CUgraphExec exec;

    begin(side);
    launch_store(side, word(0), 1);
    drv.cuEventRecordWithFlags(second, side, CU_EVENT_RECORD_EXTERNAL);
    launch_store(side, word(1), 1);
    drv.cuStreamWaitEvent(side, event, CU_EVENT_WAIT_EXTERNAL);
    launch_add(side, word(3), word(2));
    exec = exec_of(side);
    fresh();

    drv.cuGraphLaunch(exec, side);
    drv.cuStreamWaitEvent(other, second, 0);
    launch_store(other, word(0), 2);
    raced(0, "waiting for an event that a graph records");
    drv.cuGraphLaunch(exec, side);
    drv.cuStreamWaitEvent(other, second, 0);
    launch_store(other, word(1), 2);
    raced(1, "what comes after the record in the graph");
    drv.cuGraphLaunch(exec, side);
    launch_store(other, word(0), 2);
    raced(1, "not waiting for the graph's event");

    launch_store(other, word(2), 2);
    drv.cuEventRecord(event, other);
    drv.cuGraphLaunch(exec, side);
    raced(0, "a graph that waits for an event from outside");
    drv.cuEventRecord(event, other);
    launch_store(other, word(2), 2);
    drv.cuGraphLaunch(exec, side);
    raced(1, "an outside event recorded too early for a graph");
    drv.cuGraphExecDestroy(exec);
}

static void test_memory_that_was_freed(void)
{
    CUdeviceptr address = 0;

    drv.cuMemAlloc(&address, 64);
    launch_store(side, address, 1);
    drv.cuMemFree(address);
    drv.cuMemAlloc(&address, 64);
    launch_store(other, address, 1);
    raced(0, "new memory at an old address");
    drv.cuMemFree(address);
}

static void test_streams_that_are_gone(void)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

        launch_store(stream, word(0), 1);
        drv.cuStreamDestroy(stream);
        stream = new_stream(CU_STREAM_NON_BLOCKING);
        launch_store(stream, word(0), 1);
        raced(1, "a new stream beside one that was destroyed");
        drv.cuStreamDestroy(stream);
    }
}

static void test_every_seed_reports(void)
{
    int missed = 0, invented = 0;

    for (int seed = 0; seed < 64; seed++) {
        configure("SEED=%d", seed);
        launch_store(side, word(0), 1);
        launch_store(other, word(0), 2);
        drv.cuCtxSynchronize();
        missed += races() != 1;
        configure("SEED=%d", seed);
        launch_store(side, word(0), 1);
        drv.cuEventRecord(event, side);
        drv.cuStreamWaitEvent(other, event, 0);
        launch_store(other, word(0), 2);
        drv.cuCtxSynchronize();
        invented += races() != 0;
    }
    is_int(missed, 0, "a race is reported under every seed");
    is_int(invented, 0, "an order is seen under every seed");
}

static void test_switched_off(void)
{
    configure("RACES=0");
    launch_store(side, word(0), 1);
    launch_store(other, word(0), 2);
    drv.cuCtxSynchronize();
    is_int(races(), 0, "RACES=0 reports nothing");
    configure("RACES=1");
    launch_store(side, word(0), 1);
    drv.cuCtxSynchronize();
    is_int(races(), 0, "switching on does not look back");
}

static void test_said_once(void)
{
    configure("SEED=0");
    for (int i = 0; i < 10; i++) {
        launch_store(side, word(0), 1);
        launch_store(other, word(0), 2);
    }
    drv.cuCtxSynchronize();
    ok(races() >= 1 && races() <= 2, "a race that repeats is said once");
    fresh();
    is_int(races(), 0, "configuring forgets the reports");
}

/* Each pair of operations is a race of its own, whichever of both differs. */
static void test_each_pair_is_said(void)
{
    fresh();
    launch_store(side, word(0), 1);
    launch_store(other, word(0), 2);
    drv.cuCtxSynchronize();
    drv.cuMemsetD32Async(word(1), 1, 1, side);
    launch_store(other, word(1), 2);
    drv.cuCtxSynchronize();
    is_int(races(), 2, "another operation before the same one is another race");
    launch_store(side, word(2), 1);
    drv.cuMemsetD32Async(word(2), 2, 1, other);
    drv.cuCtxSynchronize();
    is_int(races(), 3, "and so is another one behind it");
    launch_store(side, word(3), 1);
    drv.cuMemsetD32Async(word(3), 2, 1, other);
    drv.cuCtxSynchronize();
    is_int(races(), 3, "but not the same pair at another address");
    fresh();
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    event = new_event(CU_EVENT_DISABLE_TIMING);
    second = new_event(CU_EVENT_DISABLE_TIMING);
    test_two_streams();
    test_event_edges();
    test_host_edges();
    test_legacy_edges();
    test_copies();
    test_inside_a_graph();
    test_branch_that_comes_back();
    test_around_a_graph();
    test_branches_end_with_the_launch();
    test_external_edges();
    test_memory_that_was_freed();
    test_streams_that_are_gone();
    test_every_seed_reports();
    test_switched_off();
    test_said_once();
    test_each_pair_is_said();
    drv.cuEventDestroy(event);
    drv.cuEventDestroy(second);
    contract_close();
    return done_testing();
}
