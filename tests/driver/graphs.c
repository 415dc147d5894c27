/* A graph does what was captured, with the arguments of then and the memory
 * of now, as often as it is launched. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

static CUgraph capture_store(CUdeviceptr to, uint32_t value)
{
    begin(side);
    launch_store(side, to, value);
    return end_graph(side);
}

static void test_bad_arguments(void)
{
    CUgraph graph = capture_store(word(0), 1);
    CUgraphExec exec = NULL;

    is_int(drv.cuGraphInstantiateWithFlags(&exec, graph, 1u << 20), 1,
           "unknown flags are refused");
    is_int(drv.cuGraphInstantiateWithFlags(&exec, NULL, 0), 1,
           "a NULL graph is not instantiated");
    is_int(drv.cuGraphDestroy(NULL), 1, "cuGraphDestroy of NULL is 1");
    is_int(drv.cuGraphExecDestroy(NULL), 1, "cuGraphExecDestroy of NULL is 1");
    is_int(drv.cuGraphLaunch(NULL, side), 1, "a NULL exec is not launched");
    is_int(drv.cuGraphInstantiateWithFlags(
               &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
           0, "node priorities can be asked for");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_nothing_runs_while_captured(void)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t n = 0;

    drv.cuMemsetD32Async(word(1), 5, 1, side);
    drv.cuCtxSynchronize();
    graph = capture_store(word(1), 6);
    is_int(drv.cuGraphGetNodes(graph, NULL, &n), 0, "nodes are counted");
    is_int(n, 1, "one launch is one node");
    is_int(word_at(word(1)), 5, "captured work does not run");

    exec = instantiate(graph);
    is_int(drv.cuGraphDestroy(graph), 0, "the graph may go before its exec");
    is_int(word_at(word(1)), 5, "an instantiated graph does not run");
    is_int(drv.cuGraphUpload(exec, side), 0, "an exec is uploaded");
    is_int(drv.cuGraphLaunch(exec, side), 0, "an exec is launched");
    is_int(word_at(word(1)), 6, "a launched graph runs");
    is_int(drv.cuGraphExecDestroy(exec), 0, "an exec is destroyed");
}

static void test_arguments_of_then_memory_of_now(void)
{
    CUdeviceptr to = word(2), from = word(3);
    void *params[] = { &to, &from };
    CUgraphExec exec;
    CUgraph graph;

    begin(side);
    drv.cuLaunchKernel(contract_kernel("add"), 1, 1, 1, 1, 1, 1, 0, side,
                       params, NULL);
    graph = end_graph(side);
    to = from = 0;
    exec = instantiate(graph);

    drv.cuMemsetD32Async(word(2), 0, 1, side);
    for (uint32_t i = 1; i <= 10; i++) {
        drv.cuMemsetD32Async(word(3), i, 1, side);
        drv.cuGraphLaunch(exec, side);
    }
    is_int(word_at(word(2)), 55, "each launch reads what memory holds then");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void count(void *user)
{
    ++*(uint32_t *)user;
}

static void test_every_kind_of_node(void)
{
    uint32_t calls = 0;
    CUgraphExec exec;
    CUgraph graph;
    size_t n = 0;

    begin(side);
    drv.cuMemcpyHtoDAsync(word(4), &pinned[4], WORD, side);
    drv.cuMemsetD32Async(word(5), 100, 1, side);
    launch_add(side, word(5), word(4));
    drv.cuMemcpyDtoDAsync(word(6), word(5), WORD, side);
    drv.cuMemcpyDtoHAsync(&pinned[5], word(6), WORD, side);
    drv.cuLaunchHostFunc(side, count, &calls);
    graph = end_graph(side);
    drv.cuGraphGetNodes(graph, NULL, &n);
    is_int(n, 6, "copies, memsets, kernels and host functions are nodes");
    exec = instantiate(graph);

    for (uint32_t i = 1; i <= 3; i++) {
        pinned[4] = i;
        drv.cuGraphLaunch(exec, side);
        drv.cuStreamSynchronize(side);
        is_int(pinned[5], 100 + i, "launch %u copies what is there then",
               (unsigned)i);
    }
    is_int(calls, 3, "a host function runs once per launch");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_fork_and_join(void)
{
    CUevent fork = new_event(CU_EVENT_DISABLE_TIMING);
    CUevent join = new_event(CU_EVENT_DISABLE_TIMING);
    CUgraphExec exec;
    CUgraph graph;

    begin(side);
    launch_store(side, word(10), 1);
    drv.cuEventRecord(fork, side);
    drv.cuStreamWaitEvent(other, fork, 0);
    launch_add(side, word(10), word(10));
    launch_store(other, word(11), 30);
    launch_add(other, word(11), word(11));
    drv.cuEventRecord(join, other);
    drv.cuStreamWaitEvent(side, join, 0);
    launch_add(side, word(10), word(11));
    graph = end_graph(side);
    exec = instantiate(graph);

    is_int(drv.cuGraphLaunch(exec, blocking), 0, "a graph runs on any stream");
    is_int(word_at(word(10)), 62, "branches meet where they were joined");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuEventDestroy(fork);
    drv.cuEventDestroy(join);
}

static void test_stream_order_around_a_launch(void)
{
    CUgraph graph;
    CUgraphExec exec;

    begin(side);
    launch_add(side, word(12), word(13));
    graph = end_graph(side);
    exec = instantiate(graph);
    launch_store(other, word(12), 1);
    launch_store(other, word(13), 2);
    drv.cuGraphLaunch(exec, other);
    launch_add(other, word(12), word(12));
    is_int(word_at(word(12)), 6, "a launch takes its place in the stream");

    is_int(drv.cuGraphLaunch(exec, NULL), 0, "the legacy stream takes graphs");
    is_int(drv.cuGraphUpload(exec, NULL), 0, "and uploads");
    is_int(word_at(word(12)), 8, "a graph on the legacy stream runs");

    drv.cuGraphLaunch(exec, side);
    is_int(drv.cuGraphExecDestroy(exec), 0, "an exec in flight may go");
    is_int(word_at(word(12)), 10, "its launch ends nevertheless");
    drv.cuGraphDestroy(graph);
}

static void test_an_exec_does_not_run_beside_itself(void)
{
    CUgraph graph;
    CUgraphExec exec;

    drv.cuMemsetD32Async(word(14), 0, 2, side);
    drv.cuMemsetD32Async(word(15), 1, 1, side);
    drv.cuCtxSynchronize();
    begin(side);
    launch_add(side, word(14), word(15));
    graph = end_graph(side);
    exec = instantiate(graph);
    for (int i = 0; i < 50; i++) {
        drv.cuGraphLaunch(exec, i % 2 ? side : other);
    }
    is_int(word_at(word(14)), 50, "launches of one exec do not overlap");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_external_events(void)
{
    CUevent in = new_event(CU_EVENT_DISABLE_TIMING);
    CUevent out = new_event(CU_EVENT_DISABLE_TIMING);
    CUgraphExec exec;
    CUgraph graph;
    size_t n = 0;

    drv.cuEventRecord(in, other);
    begin(side);
    is_int(drv.cuStreamWaitEvent(side, in, CU_EVENT_WAIT_EXTERNAL), 0,
           "an external wait is captured");
    launch_add(side, word(21), word(20));
    is_int(drv.cuEventRecordWithFlags(out, side, CU_EVENT_RECORD_EXTERNAL), 0,
           "an external record is captured");
    graph = end_graph(side);
    drv.cuGraphGetNodes(graph, NULL, &n);
    is_int(n, 3, "external waits and records are nodes");
    exec = instantiate(graph);

    drv.cuMemsetD32Async(word(21), 0, 1, side);
    for (uint32_t i = 1; i <= 10; i++) {
        launch_store(other, word(20), i);
        drv.cuEventRecord(in, other);
        drv.cuGraphLaunch(exec, side);
        drv.cuStreamWaitEvent(other, out, 0);
    }
    is_int(drv.cuEventSynchronize(out), 0,
           "an event recorded by a graph can be waited for");
    is_int(word_at(word(21)), 55,
           "external events order a graph against other streams, each launch");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuEventDestroy(in);
    drv.cuEventDestroy(out);
}

static void test_empty_graph(void)
{
    CUgraphExec exec;
    CUgraph graph;
    size_t n = 9;

    begin(side);
    graph = end_graph(side);
    is_int(drv.cuGraphGetNodes(graph, NULL, &n), 0, "nothing is countable");
    is_int(n, 0, "a capture of nothing has no nodes");
    exec = instantiate(graph);
    is_int(drv.cuGraphLaunch(exec, side), 0, "an empty graph is launched");
    is_int(drv.cuStreamSynchronize(side), 0, "and ends");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_without_context(void)
{
    CUgraph graph = capture_store(word(30), 3);
    CUgraphExec exec = instantiate(graph);

    drv.cuCtxSetCurrent(NULL);
    is_int(drv.cuGraphLaunch(exec, side), 0,
           "a stream brings the context of a graph");
    is_int(drv.cuGraphLaunch(exec, NULL), 201,
           "the legacy stream does not bring one");
    drv.cuCtxSetCurrent(ctx);
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    test_bad_arguments();
    test_nothing_runs_while_captured();
    test_arguments_of_then_memory_of_now();
    test_every_kind_of_node();
    test_fork_and_join();
    test_stream_order_around_a_launch();
    test_an_exec_does_not_run_beside_itself();
    test_external_events();
    test_empty_graph();
    test_without_context();
    contract_close();
    return done_testing();
}
