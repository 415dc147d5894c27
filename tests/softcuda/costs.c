/* What operations take on the virtual clock can be said, and copies take turns
 * at the engine of their way: what overlaps, and what does not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <stdio.h>
#include <unistd.h>

#define MS 1000000u

static CUstream third;
static CUdeviceptr device;
static char *host;

static void start(const char *lines)
{
    drv.cuCtxSynchronize();
    configure("SEED=0");
    is_int(soft.costs("call cuMemcpyDtoHAsync 0\ncall cuMemcpyHtoDAsync 0\n"
                      "call cuMemcpyDtoDAsync 0\ncall cuLaunchKernel 0\n"
                      "call cuEventRecord 0\ncall cuStreamWaitEvent 0\n"
                      "call cuGraphLaunch 0\nlaunch 0\nnode 0\n"
                      "copy out 1000000\ncopy back 1000000\n"
                      "copy within 1000000\nkernel * 1000000\n"),
           0, "costs are understood");
    is_int(lines != NULL ? soft.costs(lines) : 0, 0, "and some more");
}

static void out(CUstream stream, int i)
{
    drv.cuMemcpyDtoHAsync(host + 64 * i, device + 64 * (CUdeviceptr)i, 64,
                          stream);
}

static void back(CUstream stream, int i)
{
    drv.cuMemcpyHtoDAsync(device + 64 * (CUdeviceptr)i, host + 64 * i, 64,
                          stream);
}

static void within(CUstream stream, int to, int from)
{
    drv.cuMemcpyDtoDAsync(device + 64 * (CUdeviceptr)to,
                          device + 64 * (CUdeviceptr)from, 64, stream);
}

static void took(uint64_t tenths, const char *what)
{
    is_int(soft.clock() / (MS / 10), tenths, "%s", what);
}

static void test_one_way(void)
{
    start(NULL);
    out(side, 0);
    out(other, 1);
    took(20, "two copies out take turns, on two streams");
    start(NULL);
    back(side, 0);
    back(other, 1);
    back(third, 2);
    took(30, "three copies back take turns");
    start(NULL);
    within(side, 0, 1);
    within(other, 2, 3);
    took(20, "two copies within the device take turns");
}

static void test_ways_overlap(void)
{
    start(NULL);
    out(side, 0);
    back(other, 1);
    within(third, 2, 3);
    took(10, "the three ways are beside each other");
    start(NULL);
    for (int i = 0; i < 4; i++) {
        launch_store(third, word(0), 1);
    }
    out(side, 0);
    out(other, 1);
    back(side, 2);
    back(other, 3);
    took(40, "copies both ways are beside kernels");
    start(NULL);
    out(side, 0);
    back(side, 1);
    launch_store(side, word(1), 1);
    took(30, "what is on one stream stays in its order");
}

static void test_who_is_ready_goes_first(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    start("kernel store 5000000");
    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(third, event, 0);
    out(third, 0); /* from 5 to 6 */
    out(other, 1); /* from 0 to 1 */
    out(other, 2); /* from 1 to 2 */
    drv.cuStreamSynchronize(other);
    took(60, "a copy that waits does not hold up those that are ready");
    start("kernel store 5000000\ncopy out 3000000\n");
    launch_store(side, word(0), 1);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(third, event, 0);
    out(third, 0); /* from 5 to 8 */
    out(other, 1); /* from 0 to 3 */
    out(other, 2); /* does not fit before */
    took(110, "nor is it cut in two");
    drv.cuEventDestroy(event);
}

static void test_graphs_copy_too(void)
{
    CUgraph graph;
    CUgraphExec exec;

    begin(side);
    out(side, 0);
    out(side, 1);
    graph = end_graph(side);
    exec = instantiate(graph);
    start("node 1000000");
    drv.cuGraphLaunch(exec, side);
    out(other, 2);
    took(30, "copies of a graph take their turns with others");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_rates(void)
{
    start("copy out 1000000 0.000064\nlaunch 500000\n");
    out(side, 0);
    took(20, "bytes take time at the rate that was said");
    start("kernel st* 2000000\n");
    launch_store(side, word(0), 1);
    took(20, "a star stands for the rest of a name");
    start("kernel store 3000000\nkernel st* 2000000\nlaunch 500000\n");
    launch_store(side, word(0), 1);
    took(25, "the last line that fits counts, and the gap before a kernel");
    start("set 4000000 1000\n");
    drv.cuMemsetD8Async(device, 0, 64, side);
    took(40, "a memset takes what was said");
    start("call cuLaunchKernel 7000000\n");
    launch_store(side, word(0), 1);
    took(80, "so does a call");
    is_int(soft.costs(NULL), 0, "the defaults are taken back");
    configure("SEED=0");
    launch_store(side, word(0), 1);
    ok(soft.clock() < MS / 10, "and a configuration begins with them");
}

static void test_lines(void)
{
    static const char *const bad[] = {
        "kernel",        "kernel a",       "kernel a b",  "kernel a -1",
        "kernel a nan",  "copy up 1",      "copy out",    "copy out 1 0",
        "copy out 1 -2", "call nothing 1", "call cuInit 1 2",
        "launch 1 2",    "node",           "cost a 1",    "set 1 2 3",
        "kernel a 1 2 3",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        is_int(soft.costs(bad[i]), 1, "\"%s\" is no cost", bad[i]);
    }
    is_int(soft.costs("# a comment\n\nlaunch 3\n  node\t4\r\nlaunch x\n"), 5,
           "the line that is wrong is told");
    is_int(soft.costs(""), 0, "no line is fine");
}

static void test_file(void)
{
    char path[32], text[64];
    FILE *file;

    snprintf(path, sizeof(path), "costs-%d.tmp", (int)getpid());
    file = fopen(path, "w");
    if (file == NULL) {
        ok(false, "a file can be made");
        return;
    }
    fputs("# nanoseconds\nkernel store 6000000\n", file);
    fclose(file);
    configure("COSTS=%s", path);
    launch_store(side, word(0), 1);
    took(60, "a file says what operations take");
    snprintf(text, sizeof(text), "COSTS=%s", path);
    file = fopen(path, "a");
    fputs("kernel\n", file);
    fclose(file);
    is_int(soft.configure(text), -1, "a file with a wrong line is refused");
    unlink(path);
    is_int(soft.configure(text), -1, "and one that is not there");
    configure("SEED=0");
}

/* More turns than an engine remembers. */
static void test_many(void)
{
    start(NULL);
    for (int i = 0; i < 600; i++) {
        out(i % 2 == 0 ? side : other, i % 8);
    }
    took(6000, "many copies take as many turns");
}

int main(void)
{
    void *memory = NULL;
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    third = new_stream(CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&device, 4096);
    drv.cuMemAllocHost(&memory, 4096);
    host = memory;
    drv.cuMemsetD8Async(device, 0, 4096, side);
    test_one_way();
    test_ways_overlap();
    test_who_is_ready_goes_first();
    test_graphs_copy_too();
    test_rates();
    test_lines();
    test_file();
    test_many();
    drv.cuMemFreeHost(memory);
    drv.cuMemFree(device);
    drv.cuStreamDestroy(third);
    contract_close();
    return done_testing();
}
