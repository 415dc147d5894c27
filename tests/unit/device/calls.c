/*
 * The device's calls on a driver of this file's: which context a thread has
 * when the driver does not say, which kernel copies, and that what is read was
 * waited for.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/private.h"
#include "support/fake.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define OURS ((CUcontext)1)
#define THEIRS ((CUcontext)2)
#define STREAM ((CUstream)7)

/* ---- the driver ---------------------------------------------------------- */

static CUcontext current;
static CUstreamCaptureMode mode;
static CUresult says, exchanges, launches, copies;
static int exchanges_left; /* calls that fail */
static uint64_t *verdict;  /* where it is to be written, once waited for */
static uint64_t finds;

static CUresult get_current(CUcontext *context_p)
{
    if (says == CUDA_SUCCESS) {
        *context_p = current;
    }
    return says;
}

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult exchange(CUstreamCaptureMode *mode_p)
{
    const CUstreamCaptureMode before = mode;

    if (exchanges != CUDA_SUCCESS && exchanges_left-- > 0) {
        return exchanges;
    }
    mode = *mode_p;
    *mode_p = before;
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, unsigned int x, unsigned int y,
                       unsigned int z, unsigned int bx, unsigned int by,
                       unsigned int bz, unsigned int shared, CUstream stream,
                       void **params, void **extra)
{
    (void)x;
    (void)y;
    (void)z;
    (void)bx;
    (void)by;
    (void)bz;
    (void)shared;
    (void)stream;
    (void)params;
    (void)extra;
    note("launch%d ", (int)(uintptr_t)function);
    return launches;
}

static CUresult memset_async(CUdeviceptr at, unsigned char byte, size_t bytes,
                             CUstream stream)
{
    (void)at;
    (void)stream;
    note("set%x:%d ", byte, (int)bytes);
    return CUDA_SUCCESS;
}

/* A copy ends when it is waited for. */
static CUresult copy_out(void *host, CUdeviceptr from, size_t bytes,
                         CUstream stream)
{
    (void)from;
    (void)bytes;
    (void)stream;
    note("out ");
    verdict = host;
    return copies;
}

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    note("wait ");
    if (verdict != NULL) {
        *verdict = finds;
    }
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult result, const char **name_p)
{
    (void)result;
    *name_p = "AN_ERROR";
    return CUDA_SUCCESS;
}

static struct gh_device dev;

static void begin(void)
{
    memset(&dev, 0, sizeof(dev));
    dev.ctx = OURS;
    dev.copy_small = (CUfunction)3;
    dev.copy_large = (CUfunction)4;
    dev.compare = (CUfunction)5;
    dev.drv.cuCtxGetCurrent = get_current;
    dev.drv.cuCtxSetCurrent = set_current;
    dev.drv.cuThreadExchangeStreamCaptureMode = exchange;
    dev.drv.cuLaunchKernel = launch;
    dev.drv.cuMemsetD8Async = memset_async;
    dev.drv.cuMemcpyDtoHAsync = copy_out;
    dev.drv.cuStreamSynchronize = synchronize;
    dev.drv.cuGetErrorName = dev.drv.cuGetErrorString = error_name;
    says = exchanges = launches = copies = CUDA_SUCCESS;
    exchanges_left = 0;
    verdict = NULL;
    calls[0] = '\0';
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* ---- contexts ------------------------------------------------------------ */

static void test_contexts(void)
{
    static const struct {
        const char *what;
        CUcontext before, after;
        CUresult says;
    } cases[] = {
        { "a thread with this context", OURS, OURS, CUDA_SUCCESS },
        { "a thread with another context", THEIRS, THEIRS, CUDA_SUCCESS },
        { "a thread without a context", NULL, NULL, CUDA_SUCCESS },
        { "a thread of which the driver does not say", THEIRS, OURS,
          CUDA_ERROR_UNKNOWN },
        { "one without a context of which it does not say", NULL, OURS,
          CUDA_ERROR_UNKNOWN },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gh_device_before before;

        begin();
        current = cases[i].before;
        says = cases[i].says;
        before = gh_device_enter(&dev);
        ok(current == OURS, "%s works in the device's", cases[i].what);
        is_int(mode, CU_STREAM_CAPTURE_MODE_RELAXED, "%s may allocate",
               cases[i].what);
        gh_device_leave(&dev, before);
        ok(current == cases[i].after, "%s has its own again, or the device's",
           cases[i].what);
        is_int(mode, CU_STREAM_CAPTURE_MODE_GLOBAL, "%s and its mode",
               cases[i].what);
    }
}

static void test_modes_that_fail(void)
{
    struct gh_device_before before;

    begin();
    current = OURS;
    before = gh_device_enter(&dev);
    exchanges = CUDA_ERROR_UNKNOWN;
    exchanges_left = 1;
    gh_device_leave(&dev, before);
    is_int(mode, CU_STREAM_CAPTURE_MODE_GLOBAL, "a mode is put back again");
    begin();
    exchanges = CUDA_ERROR_UNKNOWN;
    exchanges_left = 1;
    before = gh_device_enter(&dev);
    gh_device_leave(&dev, before);
    is_int(mode, CU_STREAM_CAPTURE_MODE_GLOBAL,
           "one that was not changed stays");
}

/* ---- kernels ------------------------------------------------------------- */

static void test_copies(void)
{
    static const struct {
        uint32_t n;
        const char *calls;
    } cases[] = {
        { 0, "" },
        { 1, "launch3 " },
        { GH_COPY_SMALL, "launch3 " },
        { GH_COPY_SMALL + 1, "launch4 " },
        { GH_COPY_LARGE, "launch4 " },
        { GH_COPY_LARGE + 1, "launch4 launch3 " },
        { GH_COPY_LARGE + GH_COPY_SMALL + 1, "launch4 launch4 " },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gh_copy *copy = NULL;
        uint64_t bytes = 0;

        begin();
        gh_device_copy_create(&dev, 2 * GH_COPY_LARGE, &copy, &err);
        for (uint32_t k = 0; k < 2 * GH_COPY_LARGE; k++) {
            gh_device_copy_set(copy, k, (void *)8, (void *)16, 16);
        }
        is_status(
            gh_device_copy_launch(&dev, copy, cases[i].n, STREAM, &bytes, &err),
            GH_OK, &err, "%u copies", cases[i].n);
        is_str(calls, cases[i].calls, "take the smallest kernels that fit");
        is_int(bytes, 16 * cases[i].n, "and all of them");
        is_status(gh_device_copy_launch(&dev, copy, 2 * GH_COPY_LARGE + 1,
                                        STREAM, &bytes, &err),
                  GH_ERR_INTERNAL, &err, "no more than there are");
        gh_device_copy_destroy(copy);
    }
}

static void test_compare(void)
{
    uint64_t first = 1;

    begin();
    finds = 40;
    is_status(gh_device_compare(&dev, &dev, &dev, 100, STREAM, &first, &err),
              GH_OK, &err, "memory is compared");
    is_str(calls, "setff:8 launch5 out wait ", "and the answer is waited for");
    is_int(first, 40, "before it is read");
    begin();
    launches = CUDA_ERROR_UNKNOWN;
    first = 1;
    ok(gh_device_compare(&dev, &dev, &dev, 100, STREAM, &first, &err) < 0,
       "a compare may fail");
    is_str(calls, "setff:8 launch5 wait ", "what was issued is waited for");
    is_int(first, 1, "and there is no answer");
    begin();
    copies = CUDA_ERROR_UNKNOWN;
    ok(gh_device_compare(&dev, &dev, &dev, 100, STREAM, &first, &err) < 0,
       "so may the copy of its answer");
    is_str(calls, "setff:8 launch5 out wait ", "which is waited for too");
}

/* ---- memory that nobody needs -------------------------------------------- */

static int discard(const void *at, uint64_t bytes, void *stream, void *event)
{
    (void)at;
    (void)stream;
    note("discard:%d%s ", (int)bytes, event != NULL ? "R" : "");
    return 0;
}

static CUresult record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    note("R ");
    return CUDA_SUCCESS;
}

static void test_memory_that_nobody_needs(void)
{
    begin();
    dev.drv.cuEventRecord = record;
    gh_device_discard(&dev, &dev, 8, STREAM, &dev);
    is_str(calls, "", "what is discarded costs a device nothing");
    gh_device_spoil(&dev, &dev, 8, 0xFF, STREAM, NULL);
    gh_device_spoil(&dev, &dev, 8, 0x31, STREAM, &dev);
    gh_device_spoil(&dev, NULL, 0, 0x31, STREAM, &dev);
    is_str(calls, "setff:8 set31:8 R ",
           "what is spoilt has other contents, and its event comes after");
    begin();
    dev.discard = discard;
    gh_device_discard(&dev, &dev, 8, STREAM, &dev);
    gh_device_spoil(&dev, &dev, 8, 0xFF, STREAM, &dev);
    gh_device_spoil(&dev, NULL, 0, 0xFF, STREAM, &dev);
    is_str(calls, "discard:8R discard:8R ",
           "the software device is told of both");
}

/* ---- kernels ------------------------------------------------------------- */

static CUresult loads, gives_functions;

static CUresult load_data(CUmodule *module_p, const void *image)
{
    note(strstr(image, ".entry") != NULL ? "load " : "what? ");
    *module_p = (CUmodule)9;
    return loads;
}

static CUresult get_function(CUfunction *function_p, CUmodule module,
                             const char *name)
{
    (void)module;
    (void)name;
    *function_p = (CUfunction)3;
    return gives_functions;
}

static CUresult unload(CUmodule module)
{
    (void)module;
    note("unload ");
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address_p, size_t bytes)
{
    (void)bytes;
    *address_p = 4096;
    return CUDA_SUCCESS;
}

static gh_status load_kernels(void)
{
    begin();
    host_memory_begin();
    dev.drv.cuModuleLoadData = load_data;
    dev.drv.cuModuleGetFunction = get_function;
    dev.drv.cuModuleUnload = unload;
    dev.drv.cuMemAlloc = allocate;
    return gh_device_kernels_load(&dev, &err);
}

static void test_kernels_are_loaded(void)
{
    loads = gives_functions = CUDA_SUCCESS;
    is_status(load_kernels(), GH_OK, &err, "a driver gets the kernels' text");
    is_str(calls, "load ", "once");
    is_int(host_memory_left(), 0, "which is not kept");
    gives_functions = CUDA_ERROR_NOT_FOUND;
    is_status(load_kernels(), GH_ERR_DEVICE, &err, "one may lack a kernel");
    is_str(calls, "load unload ", "then the module is given back");
    loads = CUDA_ERROR_INVALID_VALUE;
    is_status(load_kernels(), GH_ERR_DEVICE, &err, "or refuse the text");
    is_str(calls, "load ", "of which there is no module then");
    is_int(host_memory_left(), 0, "nor the text");
}

int main(void)
{
    test_kernels_are_loaded();
    test_contexts();
    test_modes_that_fail();
    test_copies();
    test_compare();
    test_memory_that_nobody_needs();
    return done_testing();
}
