/*
 * contract.c - the driver under test, and the few things every program needs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/driver/contract.h"

#include "softcuda/softcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver drv;
CUcontext ctx;
CUstream blocking, side, other;
CUdeviceptr words;
uint32_t *pinned;

static CUmodule module;

/* Found and launched once before any test: a driver that loads kernels
 * lazily would do so in the middle of a capture. */
static struct {
    const char *name;
    CUfunction function;
} functions[] = { { "nop", NULL }, { "store", NULL }, { "add", NULL } };

enum {
    FUNCTIONS = sizeof(functions) / sizeof(functions[0])
};

/* What every driver since CUDA 11 takes. */
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry nop()\n{\n  ret;\n}\n"
    ".visible .entry store(.param .u64 to, .param .u32 value)\n{\n"
    "  .reg .b64 %rd<3>;\n  .reg .b32 %r<2>;\n"
    "  ld.param.u64 %rd1, [to];\n  ld.param.u32 %r1, [value];\n"
    "  cvta.to.global.u64 %rd2, %rd1;\n  st.global.u32 [%rd2], %r1;\n"
    "  ret;\n}\n"
    ".visible .entry add(.param .u64 to, .param .u64 from)\n{\n"
    "  .reg .b64 %rd<5>;\n  .reg .b32 %r<4>;\n"
    "  ld.param.u64 %rd1, [to];\n  ld.param.u64 %rd2, [from];\n"
    "  cvta.to.global.u64 %rd3, %rd1;\n  cvta.to.global.u64 %rd4, %rd2;\n"
    "  ld.global.u32 %r1, [%rd3];\n  ld.global.u32 %r2, [%rd4];\n"
    "  add.u32 %r3, %r1, %r2;\n  st.global.u32 [%rd3], %r3;\n"
    "  ret;\n}\n";

static uint32_t *pointer(void *param)
{
    return (uint32_t *)(uintptr_t) * (CUdeviceptr *)param;
}

static void nop_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    (void)params;
}

static void nop_touch(const softcuda_launch *launch, void *const *params,
                      softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    (void)params;
    (void)touch;
    (void)sink;
}

static void store_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    *pointer(params[0]) = *(uint32_t *)params[1];
}

static void store_touch(const softcuda_launch *launch, void *const *params,
                        softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, pointer(params[0]), WORD, 1);
}

static void add_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    *pointer(params[0]) += *pointer(params[1]);
}

static void add_touch(const softcuda_launch *launch, void *const *params,
                      softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, pointer(params[1]), WORD, 0);
    touch(sink, pointer(params[0]), WORD, 0);
    touch(sink, pointer(params[0]), WORD, 1);
}

static const uint32_t store_params[] = { 8, 4 }, add_params[] = { 8, 8 };
static const softcuda_kernel kernels[] = {
    { "nop", 0, NULL, nop_run, nop_touch, NULL },
    { "store", 2, store_params, store_run, store_touch, NULL },
    { "add", 2, add_params, add_run, add_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, 3, 0, kernels };

static bool wants_cuda(void)
{
    const char *which = getenv("GRAPHHOOKS_TEST_DRIVER");

    return which != NULL && strcmp(which, "cuda") == 0;
}

bool contract_is_soft(void)
{
    return !wants_cuda();
}

const void *contract_image(void)
{
    return wants_cuda() ? (const void *)ptx : (const void *)&image;
}

static bool load(char *text, size_t bytes)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");

    if (wants_cuda()) {
        return driver_load("libcuda.so.1", &drv, text, bytes) == 0;
    }
    if (path != NULL && *path != '\0') {
        return driver_load(path, &drv, text, bytes) == 0;
    }
    return driver_load("./.libs/libgraphhooks-softcuda.so", &drv, text,
                       bytes) == 0 ||
           driver_load("libgraphhooks-softcuda.so", &drv, text, bytes) == 0;
}

static void load_functions(void)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        drv.cuModuleGetFunction(&functions[i].function, module,
                                functions[i].name);
    }
    drv.cuLaunchKernel(contract_kernel("nop"), 1, 1, 1, 1, 1, 1, 0, side, NULL,
                       NULL);
    launch_store(side, words, 0);
    launch_add(side, words, words);
    drv.cuCtxSynchronize();
}

bool contract_open(int *status_p)
{
    char text[256];
    int count = 0;
    void *memory;

    if (!load(text, sizeof(text))) {
        if (wants_cuda()) {
            *status_p = skip_all("%s", text);
        } else {
            ok(false, "the software device loads: %s", text);
            *status_p = done_testing();
        }
        return false;
    }
    if (drv.cuInit(0) != CUDA_SUCCESS ||
        drv.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        *status_p = skip_all("no CUDA device");
        return false;
    }
    drv.cuDevicePrimaryCtxRetain(&ctx, 0);
    drv.cuCtxSetCurrent(ctx);
    blocking = new_stream(CU_STREAM_DEFAULT);
    side = new_stream(CU_STREAM_NON_BLOCKING);
    other = new_stream(CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&words, WORDS * WORD);
    drv.cuMemsetD8Async(words, 0, WORDS * WORD, side);
    drv.cuMemAllocHost(&memory, WORDS * WORD);
    pinned = memory;
    memset(pinned, 0, WORDS * WORD);
    drv.cuCtxSynchronize();
    is_int(drv.cuModuleLoadData(&module, contract_image()), 0,
           "the test's kernels load");
    load_functions();
    return true;
}

/* The tests themselves must not depend on luck: what the software device
 * has found, of one kind. */
static void found_nothing(const char *control, const char *what)
{
    softcuda_races_fn *found = NULL;
    void *symbol = dlsym(drv.library, control);

    if (symbol != NULL) {
        memcpy(&found, &symbol, sizeof(found));
        is_int(found(0, NULL), 0, "the tests %s", what);
    }
}

void contract_close(void)
{
    is_int(drv.cuCtxSynchronize(), 0, "nothing is left broken at the end");
    found_nothing("softcuda_races", "race with nothing");
    found_nothing("softcuda_unwritten", "read nothing before it was written");
    drv.cuModuleUnload(module);
    drv.cuMemFreeHost(pinned);
    drv.cuMemFree(words);
    drv.cuStreamDestroy(blocking);
    drv.cuStreamDestroy(side);
    drv.cuStreamDestroy(other);
    drv.cuDevicePrimaryCtxRelease(0);
}

CUfunction contract_kernel(const char *name)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        if (strcmp(functions[i].name, name) == 0) {
            return functions[i].function;
        }
    }
    return NULL;
}

CUresult launch_store(CUstream stream, CUdeviceptr to, uint32_t value)
{
    void *params[] = { &to, &value };

    return drv.cuLaunchKernel(contract_kernel("store"), 1, 1, 1, 1, 1, 1, 0,
                              stream, params, NULL);
}

CUresult launch_add(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    void *params[] = { &to, &from };

    return drv.cuLaunchKernel(contract_kernel("add"), 1, 1, 1, 1, 1, 1, 0,
                              stream, params, NULL);
}

uint32_t word_at(CUdeviceptr address)
{
    uint32_t value = 0xBAD;

    drv.cuCtxSynchronize();
    drv.cuMemcpyDtoH(&value, address, WORD);
    return value;
}

CUdeviceptr word(uint32_t i)
{
    return words + (CUdeviceptr)i * WORD;
}

CUstream new_stream(unsigned int flags)
{
    CUstream stream = NULL;

    drv.cuStreamCreate(&stream, flags);
    return stream;
}

CUevent new_event(unsigned int flags)
{
    CUevent event = NULL;

    drv.cuEventCreate(&event, flags);
    return event;
}

int capture_status(CUstream stream)
{
    CUstreamCaptureStatus status = 77;
    CUresult code = drv.cuStreamIsCapturing(stream, &status);

    return code == CUDA_SUCCESS ? (int)status : -(int)code;
}

CUresult begin(CUstream stream)
{
    return drv.cuStreamBeginCapture(stream,
                                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

void end_is(CUstream stream, CUresult code, const char *after)
{
    CUgraph graph = (CUgraph)(uintptr_t)1;

    is_int(drv.cuStreamEndCapture(stream, &graph), code,
           "the end of a capture after %s answers %d", after, (int)code);
    if (code == CUDA_SUCCESS) {
        ok(graph != NULL && graph != (CUgraph)(uintptr_t)1,
           "a capture after %s gives a graph", after);
        drv.cuGraphDestroy(graph);
    } else {
        ok(graph == NULL, "a capture after %s gives a NULL graph", after);
    }
    is_int(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE,
           "the stream no longer captures after %s", after);
    drv.cuStreamSynchronize(stream);
}

CUgraph end_graph(CUstream stream)
{
    CUgraph graph = NULL;

    is_int(drv.cuStreamEndCapture(stream, &graph), 0, "a capture ends");
    return graph;
}

CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;

    is_int(drv.cuGraphInstantiateWithFlags(&exec, graph, 0), 0,
           "a graph is instantiated");
    return exec;
}

struct call {
    void (*fn)(void *);
    void *arg;
};

static void *thread_main(void *opaque)
{
    struct call *call = opaque;

    drv.cuCtxSetCurrent(ctx);
    call->fn(call->arg);
    return NULL;
}

void on_thread(void (*fn)(void *), void *arg)
{
    struct call call = { fn, arg };
    pthread_t thread;

    if (pthread_create(&thread, NULL, thread_main, &call) != 0) {
        ok(false, "a thread starts");
        return;
    }
    pthread_join(thread, NULL);
}
