/* The virtual clock: streams advance side by side, edges add up, and neither
 * the seed nor the machine changes what it says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

enum {
    SLOW_NS = 1000000
};

static CUmodule module;
static CUfunction slow, wide;

static const uint32_t wide_params[] = { 8, 8 };

static void nothing_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    (void)params;
}

static void slow_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    (void)params;
    (void)touch;
    (void)sink;
}

static uint64_t slow_ns(const softcuda_launch *launch, void *const *params)
{
    (void)params;
    return (uint64_t)launch->grid[0] * SLOW_NS;
}

static void wide_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, (void *)(uintptr_t) * (CUdeviceptr *)params[0],
          *(size_t *)params[1], 0);
}

static const softcuda_kernel kernels[] = {
    { "slow", 0, NULL, nothing_run, slow_touch, slow_ns },
    { "wide", 2, wide_params, nothing_run, wide_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, 2, 0, kernels };

/* Takes n milliseconds of the device. */
static void work(CUstream stream, unsigned int n)
{
    drv.cuLaunchKernel(slow, n, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void start(int seed)
{
    drv.cuCtxSynchronize();
    configure("SEED=%d", seed);
}

/* The clock in whole milliseconds: calls and launches cost far less. */
static void took(unsigned int ms, const char *what)
{
    is_int(soft.clock() / SLOW_NS, ms, "%s takes %u ms", what, ms);
}

static void test_streams_run_side_by_side(void)
{
    start(0);
    is_int(soft.clock(), 0, "the clock starts at 0");
    work(side, 3);
    work(other, 5);
    took(5, "work on two streams");
    start(0);
    work(side, 3);
    work(side, 5);
    took(8, "work on one stream");
}

static void test_edges_add_up(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    start(0);
    work(side, 3);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    work(other, 5);
    work(side, 4);
    took(8, "work behind a wait");

    start(0);
    work(side, 3);
    drv.cuStreamSynchronize(side);
    work(other, 5);
    took(8, "work behind a synchronize");

    start(0);
    work(blocking, 3);
    work(NULL, 2);
    work(CU_STREAM_PER_THREAD, 1);
    work(side, 4);
    took(6, "work around the legacy stream");
    drv.cuEventDestroy(event);
}

/* What is issued behind a wait begins when that is over. */
static void test_waits_take_time(void)
{
    start(0);
    work(blocking, 3);
    drv.cuStreamSynchronize(NULL);
    work(side, 2);
    took(5, "work behind a wait for the legacy stream");
    start(0);
    work(blocking, 3);
    is_int(drv.cuStreamQuery(NULL), 0, "the legacy stream is done");
    work(side, 2);
    took(5, "work behind a query of the legacy stream");
    start(1);
    work(side, 3);
    drv.cuCtxSynchronize();
    work(other, 2);
    took(5, "work behind a wait for the context");
}

static void test_graphs_run_side_by_side(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph;
    CUgraphExec exec;

    begin(side);
    work(side, 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    work(side, 2);
    work(other, 4);
    drv.cuEventRecord(event, other);
    drv.cuStreamWaitEvent(side, event, 0);
    work(side, 1);
    graph = end_graph(side);
    exec = instantiate(graph);

    start(0);
    drv.cuGraphLaunch(exec, side);
    took(6, "a graph along its longest branch");
    start(0);
    drv.cuGraphLaunch(exec, side);
    drv.cuGraphLaunch(exec, other);
    took(12, "one exec launched twice");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuEventDestroy(event);
}

static void test_events_tell_the_clock(void)
{
    CUevent a = new_event(CU_EVENT_DEFAULT), b = new_event(CU_EVENT_DEFAULT);
    float ms = 0;

    start(0);
    drv.cuEventRecord(a, side);
    work(side, 7);
    drv.cuEventRecord(b, side);
    drv.cuEventSynchronize(b);
    drv.cuEventElapsedTime(&ms, a, b);
    is_int((int)ms, 7, "events tell the virtual time");
    drv.cuEventDestroy(a);
    drv.cuEventDestroy(b);
}

static uint64_t mixed(int seed)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    start(seed);
    for (unsigned int i = 0; i < 30; i++) {
        work(i % 3 ? side : other, i % 4 + 1);
        drv.cuMemcpyDtoDAsync(word(i), word(100), WORD, blocking);
        if (i % 5 == 0) {
            drv.cuEventRecord(event, side);
            drv.cuStreamWaitEvent(other, event, 0);
        }
        if (i % 11 == 0) {
            drv.cuStreamSynchronize(other);
        }
    }
    drv.cuEventDestroy(event);
    return soft.clock();
}

static void test_the_seed_does_not_matter(void)
{
    uint64_t expected = mixed(0);
    int different = 0;

    for (int seed = 0; seed < 32; seed++) {
        different += mixed(seed) != expected;
    }
    is_int(different, 0, "every seed and every run takes the same time");
}

static void test_bytes_take_time(void)
{
    const size_t bytes = 64 << 20;
    CUdeviceptr big = 0;
    uint64_t size = bytes, a, b;
    void *params[] = { &big, &size };

    drv.cuMemAlloc(&big, bytes);
    drv.cuMemsetD8Async(big, 0, bytes, side);
    start(0);
    drv.cuLaunchKernel(wide, 1, 1, 1, 1, 1, 1, 0, side, params, NULL);
    a = soft.clock();
    start(0);
    size = bytes / 2;
    drv.cuLaunchKernel(wide, 1, 1, 1, 1, 1, 1, 0, side, params, NULL);
    b = soft.clock();
    ok(a > b + b / 2, "a kernel is charged by the bytes it touches");
    drv.cuMemFree(big);
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    drv.cuModuleLoadData(&module, &image);
    drv.cuModuleGetFunction(&slow, module, "slow");
    drv.cuModuleGetFunction(&wide, module, "wide");
    test_streams_run_side_by_side();
    test_edges_add_up();
    test_waits_take_time();
    test_graphs_run_side_by_side();
    test_events_tell_the_clock();
    test_the_seed_does_not_matter();
    test_bytes_take_time();
    drv.cuModuleUnload(module);
    contract_close();
    return done_testing();
}
