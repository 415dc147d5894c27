/* Every entry point is found under its name, by dlsym and by both forms of
 * cuGetProcAddress, from its version on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <string.h>

typedef CUresult (*lookup_v1)(const char *, void **, int, uint64_t);
typedef CUresult (*lookup_v2)(const char *, void **, int, uint64_t, int *);

static lookup_v1 v1;
static lookup_v2 v2;

static void find_lookups(void)
{
    void *symbol = dlsym(drv.library, "cuGetProcAddress");

    memcpy(&v1, &symbol, sizeof(v1));
    symbol = dlsym(drv.library, "cuGetProcAddress_v2");
    memcpy(&v2, &symbol, sizeof(v2));
    ok(v1 != NULL && v2 != NULL, "both forms of cuGetProcAddress are there");
}

static void test_every_entry(void)
{
    static const struct {
        const char *name;
        int version;
    } rows[] = {
#define DRV_ENTRY(name, version, signature) { #name, version },
#include "driver/entries.def"
#undef DRV_ENTRY
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *symbol = dlsym(drv.library, rows[i].name);
        void *one = NULL, *two = NULL, *old = symbol;
        int status = 9;

        v1(rows[i].name, &one, rows[i].version, 0);
        v2(rows[i].name, &two, rows[i].version, 0, &status);
        ok(symbol != NULL && one == symbol && two == symbol && status == 0,
           "%s is the same by every way", rows[i].name);
        is_int(v2(rows[i].name, &old, rows[i].version - 10, 0, &status), 500,
               "%s is not there before its version", rows[i].name);
        ok(old == NULL && status == 2, "%s is told to be newer", rows[i].name);
        is_str(soft.entry((uint32_t)i), rows[i].name,
               "%s is listed in its place", rows[i].name);
    }
}

/* One name, and another signature from CUDA 13.0 on. */
static void test_versions(void)
{
    static const char name[] = "cuMemcpyBatchAsync";
    void *with = dlsym(drv.library, "cuMemcpyBatchAsync");
    void *without = dlsym(drv.library, "cuMemcpyBatchAsync_v2");
    void *entry = &drv;
    uint32_t n = 0;
    int status = 9;

    ok(with != NULL && without != NULL && with != without,
       "%s has two signatures", name);
    is_int(v2(name, &entry, 12070, 0, &status), 500,
           "%s is not there before CUDA 12.8", name);
    ok(entry == NULL && status == 2, "and is told to be newer");
    v2(name, &entry, 12080, 0, &status);
    ok(entry == with && status == 0, "CUDA 12.8 has the first of them");
    v1(name, &entry, 12090, 0);
    ok(entry == with, "and so has 12.9");
    v2(name, &entry, 13000, 0, &status);
    ok(entry == without && status == 0, "CUDA 13.0 has the second");
    is_int(v2("cuMemcpyBatchAsync_v2", &entry, 13000, 0, &status), 500,
           "which has no name of its own");
    while (soft.entry(n) != NULL) {
        n++;
    }
    is_str(soft.entry(n - 1), "cuMemcpyBatchAsync_v2",
           "the list of entries ends with it");
}

static void test_what_is_not_there(void)
{
    void *entry = &drv;
    int status = 9;

    is_int(v2(NULL, &entry, 12000, 0, &status), 1, "a name is needed");
    is_int(v2("cuInit", NULL, 12000, 0, &status), 1, "a result is needed");
    is_int(v2("cuInit", &entry, 12000, 1 << 8, &status), 1,
           "unknown flags are refused");
    is_int(v2("cuNothing", &entry, 12000, 0, &status), 500,
           "cuNothing is not found");
    ok(entry == NULL, "what is not found is NULL");
    is_int(status, 1, "and told to be unknown");
    is_int(v1("cuNothing", &entry, 12000, 0), 500,
           "the older form does not find it either");
    is_int(v2("cuInit", &entry, 12000, 0, NULL), 0, "the status is optional");
}

/* Two devices: each with its memory, its context, its streams. */
static void test_two_devices(void)
{
    size_t before = 0, after = 0, total = 0;
    CUcontext second = NULL, current = NULL;
    CUdeviceptr near = 0, far = 0;
    CUdevice device = -1;
    CUstream stream;
    int count = 0;

    configure("DEVICES=2");
    is_int(drv.cuDeviceGetCount(&count), 0, "devices are counted");
    is_int(count, 2, "there are as many as were asked for");
    is_int(drv.cuDevicePrimaryCtxRetain(&second, 2), 101,
           "there is no third device");
    is_int(drv.cuDevicePrimaryCtxRetain(&second, 1), 0,
           "the second device has a context");
    drv.cuMemAlloc(&near, 64);
    drv.cuMemGetInfo(&before, &total);
    drv.cuCtxSetCurrent(second);
    drv.cuCtxGetDevice(&device);
    is_int(device, 1, "the context is the second device's");
    drv.cuMemAlloc(&far, 64);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    drv.cuCtxSetCurrent(ctx);
    drv.cuMemGetInfo(&after, &total);
    is_int(after, before, "one device's memory is not the other's");

    drv.cuStreamGetCtx(stream, &current);
    ok(current == second, "a stream stays with the context it was made in");
    is_int(launch_store(stream, far, 1), 400,
           "a kernel of one context is not launched in another");
    is_int(drv.cuMemsetD32Async(far, 7, 1, stream), 0,
           "a stream works without its context being current");
    drv.cuStreamSynchronize(stream);
    is_int(drv.cuMemcpyDtoDAsync(near, far, WORD, side), 0,
           "copies go from device to device");
    is_int(word_at(near), 7, "and arrive");
    launch_store(side, far, 1);
    is_int(drv.cuCtxSynchronize(), 700,
           "a kernel does not reach the other device's memory");

    drv.cuCtxSetCurrent(second);
    is_int(drv.cuCtxSynchronize(), 0, "the other context is not broken by it");
    drv.cuStreamDestroy(stream);
    drv.cuMemFree(far);
    drv.cuDevicePrimaryCtxRelease(1);
    drv.cuCtxSetCurrent(ctx);
    drv.cuDevicePrimaryCtxRelease(0);
    drv.cuDevicePrimaryCtxRetain(&ctx, 0);
    drv.cuMemFree(near);
    configure("DEVICES=1");
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    find_lookups();
    test_every_entry();
    test_versions();
    test_what_is_not_there();
    test_two_devices();
    contract_close();
    return done_testing();
}
