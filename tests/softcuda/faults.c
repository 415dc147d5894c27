/* Failures on demand have no effect but their code, dropped waits show as
 * races, wild addresses break the context, leaks are counted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CODE = 77
};

/* One valid call of every entry point. */
static struct {
    int number;
    unsigned int mode;
    float ms;
    size_t a, b;
    const char *text;
    char name[16];
    void *host;
    CUcontext context, second;
    CUdeviceptr device;
    CUstream stream;
    CUevent event, timed[2];
    CUmodule module;
    CUfunction function;
    CUgraph graph;
    CUgraphExec exec;
    CUipcMemHandle handle;
    CUdeviceptr range;
    CUmemGenericAllocationHandle memory, imported;
    int file;
} o;

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 }
};
static const CUmemAccessDesc access_desc = {
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

#define GRANULE ((size_t)2 << 20)

static void nothing(void *user)
{
    (void)user;
}

static CUresult end_nothing(void)
{
    return drv.cuStreamEndCapture(side, &o.graph);
}

#define CALLS(CALL) \
    CALL(cuInit, (0)) \
    CALL(cuDriverGetVersion, (&o.number)) \
    CALL(cuDeviceGet, (&o.number, 0)) \
    CALL(cuDeviceGetCount, (&o.number)) \
    CALL(cuDeviceGetName, (o.name, sizeof(o.name), 0)) \
    CALL(cuDeviceGetAttribute, (&o.number, 16, 0)) \
    CALL(cuDevicePrimaryCtxRetain, (&o.context, 0)) \
    CALL(cuDevicePrimaryCtxRelease, (0)) \
    CALL(cuCtxGetCurrent, (&o.context)) \
    CALL(cuCtxSetCurrent, (ctx)) \
    CALL(cuCtxGetDevice, (&o.number)) \
    CALL(cuCtxSynchronize, ()) \
    CALL(cuCtxGetStreamPriorityRange, (&o.number, &o.number)) \
    CALL(cuMemGetInfo, (&o.a, &o.b)) \
    CALL(cuMemAlloc, (&o.device, 64)) \
    CALL(cuMemcpyHtoD, (o.device, pinned, WORD)) \
    CALL(cuMemcpyHtoDAsync, (o.device, pinned, WORD, side)) \
    CALL(cuMemcpyDtoDAsync, (o.device, word(0), WORD, side)) \
    CALL(cuMemsetD8Async, (o.device, 7, WORD, side)) \
    CALL(cuMemsetD32Async, (o.device, 7, 1, side)) \
    CALL(cuMemcpyDtoHAsync, (pinned, o.device, WORD, side)) \
    CALL(cuMemcpyDtoH, (pinned, o.device, WORD)) \
    CALL(cuMemFree, (o.device)) \
    CALL(cuMemAllocHost, (&o.host, 64)) \
    CALL(cuMemFreeHost, (o.host)) \
    CALL(cuMemGetAllocationGranularity, (&o.a, &prop, 0)) \
    CALL(cuMemAddressReserve, (&o.range, GRANULE, 0, 0, 0)) \
    CALL(cuMemCreate, (&o.memory, GRANULE, &prop, 0)) \
    CALL(cuMemExportToShareableHandle, \
         (&o.file, o.memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) \
    CALL(cuMemImportFromShareableHandle, \
         (&o.imported, (void *)(intptr_t)o.file, \
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) \
    CALL(cuMemMap, (o.range, GRANULE, 0, o.memory, 0)) \
    CALL(cuMemSetAccess, (o.range, GRANULE, &access_desc, 1)) \
    CALL(cuMemUnmap, (o.range, GRANULE)) \
    CALL(cuMemRelease, (o.memory)) \
    CALL(cuMemAddressFree, (o.range, GRANULE)) \
    CALL(cuDeviceCanAccessPeer, (&o.number, 0, 1)) \
    CALL(cuCtxEnablePeerAccess, (o.second, 0)) \
    CALL(cuCtxDisablePeerAccess, (o.second)) \
    CALL(cuMemcpyAsync, (word(0), word(1), WORD, side)) \
    CALL(cuMemcpyPeerAsync, (word(0), ctx, word(1), ctx, WORD, side)) \
    CALL(cuMemGetAddressRange, (NULL, &o.a, word(1))) \
    CALL(cuIpcGetMemHandle, (&o.handle, words)) \
    CALL(cuStreamWriteValue32, (side, word(0), 5, 0)) \
    CALL(cuStreamWaitValue32, (side, word(0), 5, 0)) \
    CALL(cuStreamWriteValue64, (side, word(2), 5, 0)) \
    CALL(cuStreamWaitValue64, (side, word(2), 5, 0)) \
    CALL(cuStreamCreate, (&o.stream, 1)) \
    CALL(cuStreamSynchronize, (o.stream)) \
    CALL(cuStreamQuery, (o.stream)) \
    CALL(cuStreamGetPriority, (o.stream, &o.number)) \
    CALL(cuStreamGetCtx, (o.stream, &o.context)) \
    CALL(cuStreamDestroy, (o.stream)) \
    CALL(cuStreamCreateWithPriority, (&o.stream, 1, -1)) \
    CALL(cuEventCreate, (&o.event, 0)) \
    CALL(cuEventRecord, (o.event, o.stream)) \
    CALL(cuEventRecordWithFlags, (o.event, o.stream, 0)) \
    CALL(cuStreamWaitEvent, (side, o.event, 0)) \
    CALL(cuEventSynchronize, (o.event)) \
    CALL(cuEventQuery, (o.event)) \
    CALL(cuEventElapsedTime, (&o.ms, o.event, o.event)) \
    CALL(cuEventDestroy, (o.event)) \
    CALL(cuLaunchHostFunc, (side, nothing, NULL)) \
    CALL(cuModuleLoadData, (&o.module, contract_image())) \
    CALL(cuModuleGetFunction, (&o.function, o.module, "nop")) \
    CALL(cuLaunchKernel, \
         (contract_kernel("nop"), 1, 1, 1, 1, 1, 1, 0, side, NULL, NULL)) \
    CALL(cuModuleUnload, (o.module)) \
    CALL(cuThreadExchangeStreamCaptureMode, ((CUstreamCaptureMode *)&o.mode)) \
    CALL(cuStreamBeginCapture, (side, 1)) \
    CALL(cuStreamIsCapturing, (side, (CUstreamCaptureStatus *)&o.number)) \
    CALL(cuStreamEndCapture, (side, &o.graph)) \
    CALL(cuGraphGetNodes, (o.graph, NULL, &o.a)) \
    CALL(cuGraphInstantiateWithFlags, (&o.exec, o.graph, 0)) \
    CALL(cuGraphUpload, (o.exec, side)) \
    CALL(cuGraphLaunch, (o.exec, side)) \
    CALL(cuGraphExecDestroy, (o.exec)) \
    CALL(cuGraphDestroy, (o.graph))

struct row {
    const char *name;
    CUresult (*call)(void);
};

#define DEFINE(name, args) \
    static CUresult call_##name(void) \
    { \
        return drv.name args; \
    }
CALLS(DEFINE)
#undef DEFINE

/* What drv does not know: one copy of a batch. */
static CUdeviceptr to, from;
static size_t bytes = WORD, first;
static struct {
    int order, hints[4];
    unsigned int flags;
} in_order = { .order = 1 };

static void find(const char *symbol, void *slot)
{
    void *found = dlsym(drv.library, symbol);

    memcpy(slot, &found, sizeof(found));
    to = word(1);
    from = word(0);
}

static CUresult call_cuMemcpyBatchAsync(void)
{
    CUresult (*call)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *,
                     size_t *, size_t, size_t *, CUstream);

    find("cuMemcpyBatchAsync", &call);
    return call(&to, &from, &bytes, 1, &in_order, &first, 1, NULL, side);
}

static CUresult call_cuMemcpyBatchAsync_v2(void)
{
    CUresult (*call)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *,
                     size_t *, size_t, CUstream);

    find("cuMemcpyBatchAsync_v2", &call);
    return call(&to, &from, &bytes, 1, &in_order, &first, 1, side);
}

static CUresult call_cuStreamBatchMemOp(void)
{
    CUstreamBatchMemOpParams write = {
        .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                        .address = word(0),
                        .value = 5 }
    };

    return drv.cuStreamBatchMemOp(side, 1, &write, 0);
}

/* Of this process, in an order that each of them allows. */
#define PROCESS(name, argument_p) \
    static CUresult call_cuCheckpointProcess##name(void) \
    { \
        CUresult (*call)(int, void *); \
\
        find("cuCheckpointProcess" #name, &call); \
        return call(getpid(), argument_p); \
    }
PROCESS(GetState, &o.number)
PROCESS(Lock, NULL)
PROCESS(Checkpoint, NULL)
PROCESS(Restore, NULL)
PROCESS(Unlock, NULL)
#undef PROCESS

/* Another process's is opened: that of another device. */
static CUresult call_cuIpcOpenMemHandle(void)
{
    CUresult code;

    drv.cuCtxSetCurrent(o.second);
    code = drv.cuIpcOpenMemHandle(&o.device, o.handle,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    drv.cuCtxSetCurrent(ctx);
    return code;
}

static CUresult call_cuIpcCloseMemHandle(void)
{
    CUresult code;

    drv.cuCtxSetCurrent(o.second);
    code = drv.cuIpcCloseMemHandle(o.device);
    drv.cuCtxSetCurrent(ctx);
    return code;
}

static const struct row rows[] = {
#define ROW(name, args) { #name, call_##name },
    CALLS(ROW)
#undef ROW
    { "cuCheckpointProcessGetState", call_cuCheckpointProcessGetState },
    { "cuCheckpointProcessLock", call_cuCheckpointProcessLock },
    { "cuCheckpointProcessCheckpoint", call_cuCheckpointProcessCheckpoint },
    { "cuCheckpointProcessRestore", call_cuCheckpointProcessRestore },
    { "cuCheckpointProcessUnlock", call_cuCheckpointProcessUnlock },
    { "cuMemcpyBatchAsync", call_cuMemcpyBatchAsync },
    { "cuStreamBatchMemOp", call_cuStreamBatchMemOp },
    { "cuIpcOpenMemHandle", call_cuIpcOpenMemHandle },
    { "cuIpcCloseMemHandle", call_cuIpcCloseMemHandle },
    { "cuMemcpyBatchAsync_v2", call_cuMemcpyBatchAsync_v2 },
};

enum {
    N_ROWS = sizeof(rows) / sizeof(rows[0])
};

static void test_every_entry_fails_on_demand(void)
{
    drv.cuDevicePrimaryCtxRetain(&o.second, 1);
    for (int i = 0; i < N_ROWS; i++) {
        softcuda_counts before, after;
        CUresult code;

        configure("PROCESSES=1 FAIL=%s:1:%d", rows[i].name, CODE);
        before = counts();
        code = rows[i].call();
        after = counts();
        is_int(code, CODE, "%s fails on demand", rows[i].name);
        ok(memcmp(&before, &after, sizeof(before)) == 0,
           "a %s that failed did nothing", rows[i].name);
        code = rows[i].call();
        is_int(code, 0, "the next %s works", rows[i].name);
    }
    drv.cuStreamDestroy(o.stream);
    drv.cuDevicePrimaryCtxRelease(1);
}

static void test_every_entry_is_in_the_sweep(void)
{
    const char *name;
    int missing = 0;

    for (uint32_t i = 0; (name = soft.entry(i)) != NULL; i++) {
        bool found = strcmp(name, "cuGetErrorName") == 0 ||
                     strcmp(name, "cuGetErrorString") == 0;

        for (int row = 0; row < N_ROWS; row++) {
            found |= strcmp(rows[row].name, name) == 0;
        }
        if (!found) {
            diag("%s is not tried", name);
            missing++;
        }
    }
    is_int(missing, 0, "the sweep tries every entry point");
}

static void test_counting_calls(void)
{
    int code[4];

    configure("FAIL=cuMemGetInfo:2,cuMemGetInfo:4:5");
    for (int i = 0; i < 4; i++) {
        code[i] = drv.cuMemGetInfo(&o.a, &o.b);
    }
    is_int(code[0], 0, "a failure waits for its turn");
    is_int(code[1], 999, "without a code it is 999");
    is_int(code[2], 0, "it comes once");
    is_int(code[3], 5, "several can be asked for");
    is_int(soft.calls("cuMemGetInfo"), 4, "calls are counted");
    is_int(soft.calls("cuMemAlloc"), 0, "each entry on its own");

    configure("FAIL=*:3:8");
    drv.cuMemGetInfo(&o.a, &o.b);
    drv.cuGetErrorName(0, &o.text);
    drv.cuStreamQuery(side);
    is_int(drv.cuStreamQuery(other), 8,
           "a star counts all entries but those that name errors");
    is_int(soft.calls("*"), 3, "that count can be asked for");
}

static void test_a_failed_launch_leaves_no_trace(void)
{
    configure("SEED=0");
    launch_store(side, word(0), 1);
    drv.cuStreamSynchronize(side);
    configure("FAIL=cuLaunchKernel:1:719");
    is_int(launch_store(side, word(0), 2), 719, "a launch fails");
    is_int(word_at(word(0)), 1, "a failed launch stores nothing");

    begin(side);
    configure("FAIL=cuLaunchKernel:1:719");
    is_int(launch_store(side, word(0), 2), 719, "a captured launch fails");
    is_int(capture_status(side), 1, "the capture lives on");
    end_nothing();
    drv.cuGraphGetNodes(o.graph, NULL, &o.a);
    is_int(o.a, 0, "a failed launch is no node");
    drv.cuGraphDestroy(o.graph);
}

static void test_configuring(void)
{
    is_int(soft.configure("COLOUR=3"), -1, "an unknown word is refused");
    is_int(soft.configure("SEED"), -1, "a word needs a value");
    is_int(soft.configure("SEED=x"), -1, "a number is needed");
    is_int(soft.configure("FAIL=cuNothing:1"), -1, "an entry must exist");
    is_int(soft.configure("FAIL=cuMemAlloc"), -1, "a failure needs a number");
    is_int(soft.configure("FAIL=cuMemAlloc:1:0"), -1, "success is no failure");
    is_int(soft.configure("FAIL=cuGetErrorName:1"), -1,
           "naming errors does not fail");
    is_int(soft.configure("  SEED=4   TRACE=0 "), 0, "spaces do not matter");
    is_int(soft.configure(NULL), 0, "NULL is all defaults");
    is_int(soft.configure("MEMORY=1048576"), 0, "memory can be set");
    is_int(drv.cuMemAlloc(&o.device, 2 << 20), 2, "and then runs out");
    is_int(drv.cuMemAlloc(&o.device, 1 << 19), 0, "what is left is there");
    drv.cuMemFree(o.device);
    drv.cuMemGetInfo(&o.a, &o.b);
    is_int(o.b, 1048576, "the total is what was set");
    configure("MEMORY=17179869184");
}

/* A chain over three streams: each wait matters, each dropped one shows. */
static void chain(void)
{
    CUstream streams[3] = { side, other, blocking };
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    for (uint32_t i = 0; i < 9; i++) {
        launch_add(streams[i % 3], word(0), word(1));
        drv.cuEventRecord(event, streams[i % 3]);
        drv.cuStreamWaitEvent(streams[(i + 1) % 3], event, 0);
    }
    launch_add(streams[0], word(0), word(1));
    drv.cuCtxSynchronize();
    drv.cuEventDestroy(event);
}

static void test_dropped_waits(void)
{
    uint64_t waits;

    configure("SEED=0");
    chain();
    waits = counts().waits;
    is_int(waits, 9, "waits are counted");
    is_int(races(), 0, "the chain is in order");
    for (uint64_t n = 1; n <= waits; n++) {
        configure("SEED=%d DROP_WAIT=%d", (int)n, (int)n);
        chain();
        ok(races() > 0, "dropping wait %d of the chain is a race", (int)n);
    }
    configure("DROP_WAIT=%d", (int)waits + 1);
    chain();
    is_int(races(), 0, "dropping a wait that does not come is no race");
}

static void test_dropped_wait_in_a_capture(void)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);

    configure("DROP_WAIT=1");
    begin(side);
    drv.cuEventRecord(event, side);
    is_int(drv.cuStreamWaitEvent(other, event, 0), 0,
           "a wait dropped in a capture succeeds");
    is_int(capture_status(other), 0, "and forks nothing");
    end_nothing();
    drv.cuGraphDestroy(o.graph);
    drv.cuEventDestroy(event);
    configure("SEED=0");
}

/* A wild access: told at the next call that waits, and by all calls after,
 * until the context is let go. */
static void is_broken(const char *what)
{
    uint32_t value;

    is_int(drv.cuStreamSynchronize(side), 700, "%s is told", what);
    is_int(drv.cuCtxSynchronize(), 700, "the context stays broken by %s", what);
    is_int(drv.cuMemcpyDtoH(&value, word(0), WORD), 700,
           "nothing is copied after %s", what);
    is_int(drv.cuMemAlloc(&o.device, 64), 700, "nothing is given after %s",
           what);
    while (drv.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS) {
        /* until the last */
    }
    is_int(drv.cuCtxSynchronize(), 201, "a context let go is none");
    drv.cuDevicePrimaryCtxRetain(&o.context, 0);
    is_int(drv.cuCtxSynchronize(), 0, "a new context is whole after %s", what);
}

static void test_wild_addresses(void)
{
    CUdeviceptr freed = 0, small = 0;
    CUgraph graph;
    CUgraphExec exec;

    drv.cuMemAlloc(&small, 64);
    drv.cuMemAlloc(&freed, 64);
    begin(side);
    launch_store(side, freed, 1);
    graph = end_graph(side);
    exec = instantiate(graph);
    drv.cuMemFree(freed);

    launch_store(side, freed, 1);
    is_broken("a kernel that writes freed memory");
    launch_store(side, small + 62, 1);
    is_broken("a kernel that writes past its end");
    launch_store(side, (CUdeviceptr)(uintptr_t)&o, 1);
    is_broken("a kernel that writes pageable memory");
    drv.cuMemsetD8Async(freed, 1, 8, side);
    is_broken("a memset of freed memory");
    drv.cuMemcpyDtoDAsync(small, word(0), 65, side);
    is_broken("a copy that is one byte too long");
    drv.cuMemcpyDtoDAsync(small, freed, 8, side);
    is_broken("a copy from freed memory");
    drv.cuGraphLaunch(exec, side);
    is_broken("a graph that kept a freed address");

    is_int(drv.cuMemFree(freed), 1, "memory is not freed twice");
    for (int seed = 0; seed < 8; seed++) {
        configure("SEED=%d", seed);
        launch_store(side, word(0), 5);
        launch_store(side, freed, 1);
        launch_store(side, word(0), 6);
        drv.cuStreamSynchronize(side);
        is_broken("work between two wild accesses");
        is_int(word_at(word(0)), 5, "nothing runs after a wild access");
    }
    configure("SEED=0");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuMemFree(small);
}

/* For who has memory of his own. */
static void test_pageable_memory(void)
{
    uint32_t mine = 0;

    configure("PAGEABLE=1");
    launch_store(side, (CUdeviceptr)(uintptr_t)&mine, 5);
    is_int(drv.cuStreamSynchronize(side), 0,
           "a kernel may write pageable memory");
    is_int(mine, 5, "and does");
    drv.cuMemcpyDtoDAsync(word(0), (CUdeviceptr)(uintptr_t)&mine, WORD, side);
    is_int(word_at(word(0)), 5, "and a copy reads it");
    configure("SEED=0");
}

static void test_stale_handles(void)
{
    CUstream stream = new_stream(1);
    CUevent event = new_event(0);
    CUgraph graph;
    CUgraphExec exec;

    begin(side);
    graph = end_graph(side);
    exec = instantiate(graph);
    drv.cuStreamDestroy(stream);
    drv.cuEventDestroy(event);
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    is_int(launch_store(stream, word(0), 1), 400,
           "a destroyed stream takes no work");
    is_int(drv.cuStreamDestroy(stream), 400, "a stream is not destroyed twice");
    is_int(drv.cuEventRecord(event, side), 400,
           "a destroyed event is not recorded");
    is_int(drv.cuEventDestroy(event), 400, "an event is not destroyed twice");
    is_int(drv.cuGraphLaunch(exec, side), 1,
           "a destroyed exec is not launched");
    is_int(drv.cuGraphExecDestroy(exec), 1, "an exec is not destroyed twice");
    is_int(drv.cuGraphDestroy(graph), 1, "a graph is not destroyed twice");
}

static void test_counts(void)
{
    softcuda_counts before = counts(), during, after;

    drv.cuMemAlloc(&o.device, 100);
    drv.cuMemAllocHost(&o.host, 200);
    drv.cuStreamCreate(&o.stream, 1);
    drv.cuEventCreate(&o.event, 0);
    drv.cuModuleLoadData(&o.module, contract_image());
    begin(o.stream);
    during = counts();
    is_int(during.captures - before.captures, 1, "a capture is counted");
    drv.cuStreamEndCapture(o.stream, &o.graph);
    drv.cuGraphInstantiateWithFlags(&o.exec, o.graph, 0);
    drv.cuGraphLaunch(o.exec, o.stream);
    during = counts();
    is_int(during.device_allocations - before.device_allocations, 1,
           "device allocations are counted");
    is_int(during.device_bytes - before.device_bytes, 100,
           "device bytes are counted");
    is_int(during.host_allocations - before.host_allocations, 1,
           "pinned allocations are counted");
    is_int(during.host_bytes - before.host_bytes, 200,
           "pinned bytes are counted");
    is_int(during.streams - before.streams, 1, "streams are counted");
    is_int(during.events - before.events, 1, "events are counted");
    is_int(during.modules - before.modules, 1, "modules are counted");
    is_int(during.graphs - before.graphs, 1, "graphs are counted");
    is_int(during.execs - before.execs, 1, "execs are counted");
    is_int(during.launches - before.launches, 1, "launches are counted");
    ok(during.contexts_retained >= 1, "retained contexts are counted");

    drv.cuGraphExecDestroy(o.exec);
    drv.cuGraphDestroy(o.graph);
    drv.cuModuleUnload(o.module);
    drv.cuEventDestroy(o.event);
    drv.cuStreamDestroy(o.stream);
    drv.cuMemFreeHost(o.host);
    drv.cuMemFree(o.device);
    after = counts();
    after.launches = before.launches;
    ok(memcmp(&before, &after, sizeof(before)) == 0,
       "what was freed is not counted");
}

/* What the C library has given out; a sanitizer's own allocator says 0. */
static size_t bytes_in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void work_for_long(int n)
{
    CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;

    begin(side);
    launch_add(side, word(2), word(3));
    launch_add(side, word(4), word(3));
    drv.cuStreamEndCapture(side, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    for (int i = 0; i < n; i++) {
        launch_add(side, word(0), word(1));
        drv.cuEventRecord(event, side);
        drv.cuStreamWaitEvent(other, event, 0);
        launch_add(other, word((uint32_t)(5 + i % 100)), word(0));
        drv.cuEventRecord(event, other);
        drv.cuStreamWaitEvent(side, event, 0);
        drv.cuGraphLaunch(exec, side);
        drv.cuMemsetD8Async(word(200), 1, 100 * WORD, side);
        drv.cuMemcpyDtoDAsync(word(400), word(220), WORD, side);
        drv.cuMemcpyDtoDAsync(word(401), word((uint32_t)(200 + i % 97)),
                              3 * WORD, side);
        if (i % 50 == 0) {
            CUdeviceptr address = 0;

            drv.cuMemAlloc(&address, 4096);
            launch_store(side, address + 64, 1);
            drv.cuMemFree(address);
        }
    }
    drv.cuCtxSynchronize();
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    drv.cuEventDestroy(event);
}

static void test_memory_stays_flat(void)
{
    for (int seed = 0; seed < 4; seed++) {
        size_t before;

        configure("SEED=%d", seed);
        work_for_long(2000);
        before = bytes_in_use();
        work_for_long(10000);
        ok(bytes_in_use() < before + 65536,
           "a long run takes no more memory under seed %d", seed);
        is_int(races(), 0, "a long run is in order under seed %d", seed);
    }
}

int main(void)
{
    int status;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!controls_open(&status)) {
        return status;
    }
    o.mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    test_every_entry_fails_on_demand();
    test_every_entry_is_in_the_sweep();
    test_counting_calls();
    test_a_failed_launch_leaves_no_trace();
    test_configuring();
    test_dropped_waits();
    test_dropped_wait_in_a_capture();
    test_stale_handles();
    test_counts();
    test_wild_addresses();
    test_pageable_memory();
    test_memory_stays_flat();
    configure("SEED=0");
    contract_close();
    return done_testing();
}
