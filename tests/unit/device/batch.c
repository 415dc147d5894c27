/*
 * Several copies are one call where the driver has it, and right where it has
 * not or will not.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "device/private.h"
#include "softcuda/softcuda.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define N 5u
#define BYTES 64u

static struct gh_device *dev;
static void *stream, *device_memory;
static unsigned char *host_memory;
static struct gh_copies_out copies;

/* ---- a driver that has it ----------------------------------------------- */

static struct {
    uint32_t calls;
    size_t n, n_attributes, first;
    int order;
    bool has_failed_p;
    CUresult answer;
} fake;

static CUresult hear(const CUdeviceptr *to, const CUdeviceptr *from,
                     const size_t *bytes, size_t n, const int *attributes,
                     const size_t *first, size_t n_attributes)
{
    fake.calls++;
    fake.n = n;
    fake.order = attributes[0];
    fake.first = first[0];
    fake.n_attributes = n_attributes;
    /* The last first: there is no order among them. */
    for (size_t i = n; i-- > 0 && fake.answer == CUDA_SUCCESS;) {
        dev->drv.cuMemcpyDtoHAsync((void *)(uintptr_t)to[i], from[i], bytes[i],
                                   stream);
    }
    return fake.answer;
}

static CUresult batch_of_12_8(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                              size_t n, const int *attributes, size_t *first,
                              size_t n_attributes, size_t *failed_p,
                              CUstream on)
{
    fake.has_failed_p = failed_p != NULL && on == stream;
    return hear(to, from, bytes, n, attributes, first, n_attributes);
}

static CUresult batch_of_13_0(const CUdeviceptr *to, const CUdeviceptr *from,
                              const size_t *bytes, size_t n,
                              const int *attributes, const size_t *first,
                              size_t n_attributes, CUstream on)
{
    fake.has_failed_p = on == stream;
    return hear(to, from, bytes, n, attributes, first, n_attributes);
}

static void pretend(int version, CUresult answer)
{
    CUresult (*older)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                      const int *, size_t *, size_t, size_t *, CUstream) =
        batch_of_12_8;
    CUresult (*newer)(const CUdeviceptr *, const CUdeviceptr *, const size_t *,
                      size_t, const int *, const size_t *, size_t, CUstream) =
        batch_of_13_0;

    memset(&fake, 0, sizeof(fake));
    fake.answer = answer;
    dev->batch_version = version;
    if (version == 12080) {
        memcpy(&dev->batch, &older, sizeof(older));
    } else {
        memcpy(&dev->batch, &newer, sizeof(newer));
    }
}

/* ---- copies ------------------------------------------------------------- */

/* Whether `n` copies arrive, and nothing beside them. */
static bool arrives(uint32_t n)
{
    static unsigned char round;
    bool right = true;

    round++;
    memset(host_memory, 0xff, (size_t)2 * N * BYTES);
    copies.n = n;
    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t from = (uintptr_t)device_memory + (uintptr_t)i * BYTES;

        dev->drv.cuMemsetD8Async(from, (unsigned char)(16 * round + i), BYTES,
                                 stream);
        copies.from[i] = from;
        copies.to[i] = (uintptr_t)host_memory + (uintptr_t)2 * i * BYTES;
        copies.bytes[i] = BYTES;
    }
    right = gh_device_copy_all_out(dev, &copies, stream, NULL) == GH_OK &&
            dev->drv.cuStreamSynchronize(stream) == CUDA_SUCCESS;
    for (uint32_t i = 0; i < 2 * n * BYTES; i++) {
        const uint32_t copy = i / BYTES;

        right = right &&
                host_memory[i] ==
                    (copy % 2 == 0 ? (unsigned char)(16 * round + copy / 2)
                                   : 0xff);
    }
    return right;
}

static void test_the_driver_itself(void)
{
    dev->batch = NULL;
    gh_device_batch_find(dev);
    diag("the driver has %s", gh_device_has_batches(dev)
                                  ? "batches"
                                  : "no batches: copies are one by one");
    ok(arrives(N), "%u copies arrive", N);
    ok(arrives(1), "one does");
    ok(arrives(0), "none is none");
    dev->info.driver_version = 12070;
    gh_device_batch_find(dev);
    ok(!gh_device_has_batches(dev), "a driver of CUDA 12.7 is not asked");
    ok(arrives(N), "and copies arrive one by one");
}

static void test_signatures(void)
{
    static const int versions[] = { 12080, 13000 };

    for (int v = 0; v < 2; v++) {
        pretend(versions[v], CUDA_SUCCESS);
        ok(gh_device_has_batches(dev) && arrives(N),
           "CUDA %d: %u copies arrive", versions[v], N);
        ok(fake.calls == 1 && fake.n == N, "in one call");
        ok(fake.n_attributes == 1 && fake.first == 0 && fake.order == 1,
           "whose sources are read in the order of the stream");
        ok(fake.has_failed_p, "with all arguments where they belong");
        ok(arrives(1) && fake.calls == 1, "one copy needs no batch");
    }
}

static void test_refusals(void)
{
    pretend(13000, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ok(arrives(N) && fake.calls == 1,
       "what is refused beside a capture is copied one by one");
    ok(arrives(N) && fake.calls == 2, "and is tried again");
    pretend(13000, CUDA_ERROR_NOT_SUPPORTED);
    ok(arrives(N) && fake.calls == 1, "so is what is refused for good");
    ok(arrives(N) && fake.calls == 1 && !gh_device_has_batches(dev),
       "which is not tried again");
}

int main(void)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");
    struct gh_device_before before;
    void *pinned;
    gh_error err = { "" };

    path = path != NULL ? path : ".libs/libgraphhooks-softcuda.so";
    path = driver != NULL && strcmp(driver, "cuda") == 0 ? "cuda" : path;
    if (gh_device_open(path, NULL, 0, &dev, &err) != GH_OK) {
        return skip_all("no device: %s", err.text);
    }
    before = gh_device_enter(dev);
    if (gh_device_stream_create(dev, false, &stream, &err) != GH_OK ||
        gh_device_alloc(dev, N * BYTES, &device_memory, &err) != GH_OK ||
        gh_device_host_alloc(dev, 2 * N * BYTES, &pinned, &err) != GH_OK) {
        return skip_all("no memory: %s", err.text);
    }
    host_memory = pinned;
    test_the_driver_itself();
    test_signatures();
    test_refusals();
    gh_device_host_free(dev, pinned);
    gh_device_free(dev, device_memory);
    gh_device_stream_destroy(dev, stream);
    gh_device_leave(dev, before);
    gh_device_close(dev);
    return done_testing();
}
