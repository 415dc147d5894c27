/* What a capture forbids, what breaks it, and what it leaves behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

enum {
    NONE = CU_STREAM_CAPTURE_STATUS_NONE,
    ACTIVE = CU_STREAM_CAPTURE_STATUS_ACTIVE,
    BROKEN = CU_STREAM_CAPTURE_STATUS_INVALIDATED
};

static CUdeviceptr spare;
static void *spare_host;
static CUgraph spare_graph;
static CUgraphExec spare_exec;
static CUevent event, second;

/* One call made during a capture: its code, and what becomes of the
 * capture. */
static void during(CUstream stream, const char *what, CUresult got,
                   CUresult code, int status)
{
    is_int(got, code, "while capturing, %s answers %d", what, (int)code);
    is_int(capture_status(stream), status, "%s leaves the capture %s", what,
           status == ACTIVE ? "active" : "broken");
    if (status == BROKEN) {
        is_int(drv.cuMemsetD8Async(words, 1, 4, stream), 901,
               "work for a capture that %s broke is 901", what);
    }
    end_is(stream, status == ACTIVE ? CUDA_SUCCESS : 901, what);
}

#define DURING(stream, mode, what, call, code, status) \
    do { \
        is_int(drv.cuStreamBeginCapture(stream, mode), 0, "a capture begins"); \
        during(stream, what, call, code, status); \
    } while (0)

enum {
    GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
    LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED
};

static void test_begin_and_end(void)
{
    CUgraph graph = NULL;

    is_int(drv.cuStreamBeginCapture(NULL, LOCAL), 900,
           "the legacy stream cannot capture");
    is_int(drv.cuStreamBeginCapture(CU_STREAM_LEGACY, LOCAL), 900,
           "nor can CU_STREAM_LEGACY");
    is_int(drv.cuStreamBeginCapture(side, 9), 1, "mode 9 is unknown");
    is_int(drv.cuStreamEndCapture(side, NULL), 401,
           "without a capture it does not matter where the graph would go");
    graph = (CUgraph)(uintptr_t)1;
    is_int(drv.cuStreamEndCapture(side, &graph), 401,
           "a stream that does not capture cannot end it");
    ok(graph == NULL, "and gives a NULL graph");

    is_int(begin(CU_STREAM_PER_THREAD), 0, "the per-thread stream captures");
    end_is(CU_STREAM_PER_THREAD, 0, "capturing the per-thread stream");

    DURING(side, LOCAL, "a second begin", begin(side), 401, ACTIVE);
    is_int(capture_status(side), NONE, "an idle stream does not capture");
}

static void test_what_may_stop_the_program(void)
{
    CUdeviceptr address;
    void *host;

    DURING(side, LOCAL, "cuMemAlloc", drv.cuMemAlloc(&address, 64), 900,
           BROKEN);
    DURING(side, LOCAL, "cuMemFree", drv.cuMemFree(spare), 900, BROKEN);
    DURING(side, LOCAL, "cuMemAllocHost", drv.cuMemAllocHost(&host, 64), 900,
           BROKEN);
    DURING(side, LOCAL, "synchronizing the stream",
           drv.cuStreamSynchronize(side), 900, BROKEN);
    DURING(side, LOCAL, "querying the stream", drv.cuStreamQuery(side), 900,
           BROKEN);
    DURING(side, LOCAL, "synchronizing another stream",
           drv.cuStreamSynchronize(other), 900, BROKEN);
    DURING(side, LOCAL, "querying another stream", drv.cuStreamQuery(other),
           900, BROKEN);
    DURING(side, LOCAL, "synchronizing the context", drv.cuCtxSynchronize(),
           900, BROKEN);
    DURING(side, LOCAL, "synchronizing the legacy stream",
           drv.cuStreamSynchronize(NULL), 900, BROKEN);

    drv.cuEventRecord(event, other);
    drv.cuStreamSynchronize(other);
    DURING(side, LOCAL, "synchronizing an event", drv.cuEventSynchronize(event),
           900, BROKEN);
    DURING(side, LOCAL, "querying an event", drv.cuEventQuery(event), 900,
           BROKEN);
    DURING(side, LOCAL, "instantiating a graph",
           drv.cuGraphInstantiateWithFlags(&spare_exec, spare_graph, 0), 900,
           BROKEN);
}

static void test_what_is_harmless(void)
{
    CUstream stream;
    CUmodule module;
    CUevent e;
    size_t a, b;
    char pageable[64] = { 0 };

    DURING(side, LOCAL, "loading a module",
           drv.cuModuleLoadData(&module, contract_image()), 0, ACTIVE);
    drv.cuModuleUnload(module);
    DURING(side, LOCAL, "making an event", drv.cuEventCreate(&e, 2), 0, ACTIVE);
    DURING(side, LOCAL, "destroying an event", drv.cuEventDestroy(e), 0,
           ACTIVE);
    DURING(side, LOCAL, "making a stream", drv.cuStreamCreate(&stream, 1), 0,
           ACTIVE);
    DURING(side, LOCAL, "destroying a stream", drv.cuStreamDestroy(stream), 0,
           ACTIVE);
    DURING(side, LOCAL, "asking for free memory", drv.cuMemGetInfo(&a, &b), 0,
           ACTIVE);
    DURING(side, LOCAL, "a pageable copy into the graph",
           drv.cuMemcpyHtoDAsync(words, pageable, 64, side), 0, ACTIVE);
    DURING(side, LOCAL, "a synchronous copy",
           drv.cuMemcpyHtoD(words, pinned, 64), 0, ACTIVE);
    DURING(side, LOCAL, "a bad copy", drv.cuMemcpyDtoDAsync(0, 0, 64, side), 1,
           ACTIVE);
    DURING(side, LOCAL, "a synchronous copy to the host",
           drv.cuMemcpyDtoH(pinned, words, 64), 0, ACTIVE);
    DURING(side, LOCAL, "work on the legacy stream",
           drv.cuMemsetD8Async(words, 1, 4, NULL), 0, ACTIVE);
    DURING(side, LOCAL, "a kernel on the legacy stream",
           launch_store(NULL, words, 1), 0, ACTIVE);
    DURING(side, LOCAL, "uploading a graph elsewhere",
           drv.cuGraphUpload(spare_exec, other), 0, ACTIVE);
    DURING(side, LOCAL, "launching a graph elsewhere",
           drv.cuGraphLaunch(spare_exec, other), 0, ACTIVE);
    DURING(side, LOCAL, "waiting for an event never recorded",
           drv.cuStreamWaitEvent(side, second, 0), 0, ACTIVE);
}

static void test_graphs_and_bad_launches(void)
{
    DURING(side, LOCAL, "launching a graph into the capture",
           drv.cuGraphLaunch(spare_exec, side), 900, BROKEN);
    DURING(side, LOCAL, "uploading a graph into the capture",
           drv.cuGraphUpload(spare_exec, side), 900, BROKEN);
    DURING(side, LOCAL, "a launch of an empty grid",
           drv.cuLaunchKernel(contract_kernel("nop"), 0, 1, 1, 32, 1, 1, 0,
                              side, NULL, NULL),
           1, BROKEN);
}

static void test_legacy_stream_beside_a_blocking_capture(void)
{
    DURING(blocking, LOCAL, "work on the legacy stream",
           drv.cuMemsetD8Async(words, 1, 4, NULL), 906, BROKEN);
    DURING(blocking, LOCAL, "a kernel on the legacy stream",
           launch_store(NULL, words, 1), 906, BROKEN);
    DURING(blocking, LOCAL, "a kernel on CU_STREAM_LEGACY",
           launch_store(CU_STREAM_LEGACY, words, 1), 906, BROKEN);
    DURING(blocking, LOCAL, "a copy on the legacy stream",
           drv.cuMemcpyDtoDAsync(word(8), words, 4, NULL), 906, BROKEN);
    DURING(blocking, LOCAL, "a synchronous copy",
           drv.cuMemcpyHtoD(words, pinned, 64), 906, BROKEN);
    DURING(blocking, LOCAL, "a synchronous copy to the host",
           drv.cuMemcpyDtoH(pinned, words, 64), 906, BROKEN);
    is_int(launch_store(NULL, words, 1), 0,
           "the legacy stream takes work when the capture is over");
    DURING(blocking, LOCAL, "synchronizing the legacy stream",
           drv.cuStreamSynchronize(NULL), 906, BROKEN);
    DURING(blocking, LOCAL, "querying the legacy stream",
           drv.cuStreamQuery(NULL), 906, BROKEN);
    DURING(blocking, LOCAL, "recording on the legacy stream",
           drv.cuEventRecord(event, NULL), 906, BROKEN);
    DURING(blocking, LOCAL, "asking whether the legacy stream captures",
           -capture_status(NULL), 906, ACTIVE);
}

static void test_relaxed_mode(void)
{
    CUdeviceptr address = 0;

    DURING(side, RELAXED, "cuMemAlloc in relaxed mode",
           drv.cuMemAlloc(&address, 64), 0, ACTIVE);
    drv.cuMemFree(address);
    DURING(side, RELAXED, "synchronizing another stream in relaxed mode",
           drv.cuStreamSynchronize(other), 0, ACTIVE);
    DURING(side, RELAXED, "synchronizing the stream in relaxed mode",
           drv.cuStreamSynchronize(side), 900, BROKEN);
    DURING(side, RELAXED, "synchronizing the context in relaxed mode",
           drv.cuCtxSynchronize(), 900, BROKEN);
}

static void test_a_thread_exchanges_its_mode(void)
{
    CUstreamCaptureMode mode = RELAXED;
    CUdeviceptr address = 0;

    is_int(drv.cuThreadExchangeStreamCaptureMode(&mode), 0,
           "a thread becomes relaxed");
    is_int(mode, GLOBAL, "it was global before");
    DURING(side, LOCAL, "cuMemAlloc of a relaxed thread",
           drv.cuMemAlloc(&address, 64), 0, ACTIVE);
    drv.cuThreadExchangeStreamCaptureMode(&mode);
    is_int(mode, RELAXED, "the mode given is the mode returned");
    drv.cuMemFree(address);
}

static void test_captured_events(void)
{
    begin(side);
    is_int(drv.cuEventRecord(event, side), 0, "an event is captured");
    during(side, "querying a captured event", drv.cuEventQuery(event), 907,
           BROKEN);
    begin(side);
    drv.cuEventRecord(event, side);
    during(side, "synchronizing a captured event",
           drv.cuEventSynchronize(event), 907, BROKEN);

    begin(side);
    drv.cuEventRecord(event, side);
    end_is(side, 0, "recording an event");
    is_int(drv.cuEventQuery(event), 1, "after the capture, a query is 1");
    is_int(drv.cuEventSynchronize(event), 1, "and a synchronize is 1");
    is_int(drv.cuStreamWaitEvent(other, event, 0), 1, "and a wait is 1");
    is_int(drv.cuEventRecord(event, side), 0, "it can be recorded again");
    is_int(drv.cuEventSynchronize(event), 0, "and is an event again");
}

static void test_captured_events_have_no_time(void)
{
    CUevent a = new_event(CU_EVENT_DEFAULT), b = new_event(CU_EVENT_DEFAULT);
    float ms;

    begin(side);
    drv.cuEventRecord(a, side);
    drv.cuEventRecord(b, side);
    end_is(side, 0, "recording two events");
    is_int(drv.cuEventElapsedTime(&ms, a, b), 1,
           "no time lies between captured events");
    drv.cuEventDestroy(a);
    drv.cuEventDestroy(b);
}

static void test_isolation_and_merge(void)
{
    drv.cuEventRecord(event, other);
    DURING(side, LOCAL, "waiting for an event from outside",
           drv.cuStreamWaitEvent(side, event, 0), 905, BROKEN);

    begin(side);
    drv.cuEventRecord(event, side);
    begin(other);
    is_int(drv.cuStreamWaitEvent(other, event, 0), 902,
           "waiting for another capture's event is 902");
    is_int(capture_status(side), BROKEN, "a merge breaks the one capture");
    is_int(capture_status(other), BROKEN, "a merge breaks the other");
    end_is(other, 901, "a merge");
    end_is(side, 901, "a merge");
}

static void test_forks(void)
{
    begin(side);
    drv.cuEventRecord(event, side);
    is_int(drv.cuStreamWaitEvent(other, event, 0), 0, "a stream is forked");
    is_int(capture_status(other), ACTIVE, "a forked stream captures");
    drv.cuMemsetD8Async(words, 1, 4, other);
    end_is(side, 904, "an unjoined fork");
    is_int(capture_status(other), NONE, "the forked stream is free again");
    is_int(drv.cuMemsetD8Async(words, 1, 4, other), 0, "and takes work");
    drv.cuStreamSynchronize(other);

    begin(side);
    drv.cuMemsetD8Async(words, 1, 4, side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    end_is(side, 0, "a fork without work");
    is_int(capture_status(other), NONE, "an idle fork is free again");

    begin(side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    drv.cuMemsetD8Async(words, 1, 4, other);
    drv.cuEventRecord(event, other);
    drv.cuStreamWaitEvent(side, event, 0);
    end_is(side, 0, "a joined fork");
    is_int(capture_status(other), NONE, "a joined fork is free again");

    begin(side);
    drv.cuEventRecord(event, side);
    drv.cuStreamWaitEvent(other, event, 0);
    {
        CUgraph graph = (CUgraph)(uintptr_t)1;

        is_int(drv.cuStreamEndCapture(other, &graph), 903,
               "a capture does not end on a forked stream");
        ok(graph == NULL, "an end on the wrong stream gives a NULL graph");
    }
    is_int(capture_status(other), BROKEN, "the forked stream is broken");
    is_int(capture_status(side), BROKEN, "the origin is broken");
    end_is(side, 901, "an end on the wrong stream");
    is_int(capture_status(other), NONE, "the end frees both");
}

static void test_external_events(void)
{
    drv.cuEventRecord(event, other);
    DURING(side, LOCAL, "an external wait",
           drv.cuStreamWaitEvent(side, event, CU_EVENT_WAIT_EXTERNAL), 0,
           ACTIVE);
    DURING(side, LOCAL, "an external record",
           drv.cuEventRecordWithFlags(event, side, CU_EVENT_RECORD_EXTERNAL), 0,
           ACTIVE);
}

static void end_elsewhere(void *stream)
{
    CUgraph graph = NULL;

    is_int(drv.cuMemsetD8Async(words, 1, 4, stream), 0,
           "another thread adds work to a capture");
    is_int(drv.cuStreamEndCapture(stream, &graph), 908,
           "another thread cannot end a thread's capture");
    is_int(capture_status(stream), NONE, "but the capture is over");
    is_int(drv.cuStreamEndCapture(stream, &graph), 401,
           "there is nothing left to end");
}

static void end_relaxed_elsewhere(void *stream)
{
    CUgraph graph = NULL;

    is_int(drv.cuMemsetD8Async(words, 1, 4, stream), 0,
           "another thread adds work to a relaxed capture");
    is_int(drv.cuStreamEndCapture(stream, &graph), 0,
           "another thread ends a relaxed capture");
    drv.cuGraphDestroy(graph);
}

static void work_beside_local(void *stream)
{
    CUdeviceptr address = 0;

    is_int(drv.cuMemAlloc(&address, 64), 0,
           "another thread allocates beside a thread-local capture");
    is_int(drv.cuMemFree(address), 0, "and frees");
    is_int(drv.cuStreamSynchronize(other), 0, "and waits for its stream");
    is_int(capture_status(stream), ACTIVE, "the capture does not mind");
    is_int(drv.cuCtxSynchronize(), 900, "but may not wait for the context");
    is_int(capture_status(stream), BROKEN, "that breaks the capture");
}

static void sync_capturing(void *stream)
{
    is_int(drv.cuStreamSynchronize(stream), 900,
           "another thread may not wait for the capturing stream");
    is_int(capture_status(stream), BROKEN, "waiting for it breaks it");
}

static void work_beside_global(void *stream)
{
    CUdeviceptr address = 0;

    is_int(drv.cuMemAlloc(&address, 64), 900,
           "another thread may not allocate beside a global capture");
    is_int(capture_status(stream), BROKEN, "that breaks the global capture");
    is_int(drv.cuStreamSynchronize(other), 900,
           "a broken capture forbids as before");
}

static void destroy_elsewhere(void *stream)
{
    is_int(drv.cuStreamDestroy(stream), 0,
           "another thread destroys a capturing stream");
}

static void test_threads(void)
{
    begin(side);
    on_thread(end_elsewhere, side);
    is_int(capture_status(side), NONE, "its own thread finds no capture");
    is_int(drv.cuMemsetD8Async(words, 1, 4, side), 0, "and can work on");

    drv.cuStreamBeginCapture(side, RELAXED);
    on_thread(end_relaxed_elsewhere, side);

    begin(side);
    on_thread(work_beside_local, side);
    end_is(side, 901, "another thread's wait for the context");
    begin(side);
    on_thread(sync_capturing, side);
    end_is(side, 901, "another thread's wait for the stream");
    drv.cuStreamBeginCapture(side, GLOBAL);
    on_thread(work_beside_global, side);
    end_is(side, 901, "another thread's cuMemAlloc");
}

static void legacy_beside_blocking(void *stream)
{
    is_int(launch_store(NULL, words, 1), 906,
           "another thread may not use the legacy stream beside a blocking "
           "capture");
    is_int(capture_status(stream), BROKEN, "its kernel breaks that capture");
}

static void copy_beside_blocking(void *stream)
{
    is_int(drv.cuMemcpyHtoD(words, pinned, 64), 906,
           "another thread may not copy synchronously beside a blocking "
           "capture");
    is_int(capture_status(stream), BROKEN, "its copy breaks that capture");
}

static void legacy_beside_non_blocking(void *stream)
{
    is_int(launch_store(NULL, words, 1), 0,
           "another thread uses the legacy stream beside a non-blocking "
           "capture");
    is_int(drv.cuMemcpyHtoD(words, pinned, 64), 0, "and copies synchronously");
    is_int(drv.cuStreamSynchronize(NULL), 0, "and waits for it");
    is_int(capture_status(stream), ACTIVE, "that capture does not mind");
}

static void test_threads_on_the_legacy_stream(void)
{
    begin(blocking);
    on_thread(legacy_beside_blocking, blocking);
    end_is(blocking, 901, "another thread's kernel on the legacy stream");
    begin(blocking);
    on_thread(copy_beside_blocking, blocking);
    end_is(blocking, 901, "another thread's synchronous copy");
    begin(side);
    on_thread(legacy_beside_non_blocking, side);
    end_is(side, 0, "another thread's work on the legacy stream");
}

static void test_destroying_the_stream(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr address = 0;

    begin(stream);
    is_int(drv.cuStreamDestroy(stream), 0, "a capturing stream is destroyed");
    is_int(drv.cuMemAlloc(&address, 64), 0, "its capture is gone with it");
    drv.cuMemFree(address);

    stream = new_stream(CU_STREAM_NON_BLOCKING);
    begin(stream);
    on_thread(destroy_elsewhere, stream);
    is_int(drv.cuMemAlloc(&address, 64), 0,
           "a capture destroyed elsewhere is gone as well");
    drv.cuMemFree(address);
}

static void nothing(void *user)
{
    (void)user;
}

static void test_without_context(void)
{
    DURING(side, LOCAL, "a host function",
           drv.cuLaunchHostFunc(side, nothing, NULL), 0, ACTIVE);
    drv.cuCtxSetCurrent(NULL);
    is_int(begin(side), 0, "a capture begins without a current context");
    is_int(capture_status(side), ACTIVE, "and is seen without one");
    end_is(side, 0, "beginning without a context");
    drv.cuCtxSetCurrent(ctx);
}

static void make_spares(void)
{
    drv.cuMemAlloc(&spare, 64);
    drv.cuMemAllocHost(&spare_host, 64);
    event = new_event(CU_EVENT_DISABLE_TIMING);
    second = new_event(CU_EVENT_DISABLE_TIMING);
    begin(side);
    launch_store(side, word(100), 1);
    spare_graph = end_graph(side);
    spare_exec = instantiate(spare_graph);
}

static void free_spares(void)
{
    drv.cuGraphExecDestroy(spare_exec);
    drv.cuGraphDestroy(spare_graph);
    drv.cuEventDestroy(event);
    drv.cuEventDestroy(second);
    drv.cuMemFreeHost(spare_host);
    drv.cuMemFree(spare);
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    make_spares();
    test_begin_and_end();
    test_what_may_stop_the_program();
    test_what_is_harmless();
    test_graphs_and_bad_launches();
    test_legacy_stream_beside_a_blocking_capture();
    test_relaxed_mode();
    test_a_thread_exchanges_its_mode();
    test_captured_events();
    test_captured_events_have_no_time();
    test_isolation_and_merge();
    test_forks();
    test_external_events();
    test_threads();
    test_threads_on_the_legacy_stream();
    test_destroying_the_stream();
    test_without_context();
    free_spares();
    contract_close();
    return done_testing();
}
