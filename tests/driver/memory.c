/* Memory is there or refused, and copies move what they were told to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

#include <string.h>

static void test_bad_arguments(void)
{
    CUdeviceptr address = 1;
    void *host = NULL;

    is_int(drv.cuMemAlloc(NULL, 64), 1, "cuMemAlloc without a result is 1");
    is_int(drv.cuMemAlloc(&address, 0), 1, "cuMemAlloc of 0 bytes is 1");
    is_int(drv.cuMemAlloc(&address, (size_t)1 << 50), 2,
           "cuMemAlloc of more than there is answers 2");
    is_int(address, 0, "and gives address 0");
    is_int(drv.cuMemFree(12345), 1, "cuMemFree of a wild address is 1");
    is_int(drv.cuMemAllocHost(&host, 0), 0,
           "cuMemAllocHost of 0 bytes is "
           "nothing, but fine");
    is_int(drv.cuMemcpyHtoDAsync(0, pinned, 64, side), 1,
           "a copy to address 0 is 1");
    is_int(drv.cuMemcpyHtoDAsync(words, NULL, 64, side), 1,
           "a copy from NULL is 1");
    is_int(drv.cuMemcpyDtoHAsync(pinned, 0, 64, side), 1,
           "a copy out of address 0 is 1");
    is_int(drv.cuMemcpyDtoDAsync(0, 0, 64, side), 1,
           "a device copy between zeros is 1");
    is_int(drv.cuMemsetD8Async(0, 1, 64, side), 1, "a memset of 0 is 1");
    is_int(drv.cuMemsetD32Async(words + 1, 1, 1, side), 1,
           "a memset of a misaligned word is 1");
}

static void test_freeing_nothing_is_fine(void)
{
    is_int(drv.cuMemFree(0), 0, "cuMemFree of 0 does nothing");
    is_int(drv.cuMemFreeHost(NULL), 0, "cuMemFreeHost of NULL does nothing");
}

static void test_info_counts_what_is_taken(void)
{
    const size_t bytes = (size_t)64 << 20;
    size_t before = 0, during = 0, after = 0, total = 0;
    CUdeviceptr address = 0;

    is_int(drv.cuMemGetInfo(&before, &total), 0, "cuMemGetInfo answers");
    ok(before <= total && total > 0, "free memory is part of the total");
    is_int(drv.cuMemAlloc(&address, bytes), 0, "64 MiB are there");
    ok(address % 256 == 0, "an allocation is aligned to 256 bytes");
    drv.cuMemGetInfo(&during, &total);
    is_int(drv.cuMemFree(address), 0, "64 MiB are given back");
    drv.cuMemGetInfo(&after, &total);
    if (contract_is_soft()) {
        ok(before - during >= bytes, "an allocation lowers the free memory");
        ok(after > during, "giving back raises the free memory");
    } else {
        skip(2, "other programs use the same device's memory");
    }
    is_int(drv.cuMemFree(address), 1, "a second cuMemFree is 1");
}

static void test_copies_round_trip(void)
{
    uint32_t in[4] = { 1, 2, 3, 4 }, out[4] = { 0 };

    is_int(drv.cuMemcpyHtoD(words, in, sizeof(in)), 0, "cuMemcpyHtoD works");
    drv.cuCtxSynchronize();
    is_int(drv.cuMemcpyDtoDAsync(word(8), words, sizeof(in), side), 0,
           "cuMemcpyDtoDAsync works");
    is_int(drv.cuStreamSynchronize(side), 0, "the copy's stream drains");
    is_int(drv.cuMemcpyDtoH(out, word(8), sizeof(out)), 0,
           "cuMemcpyDtoH works");
    ok(memcmp(in, out, sizeof(in)) == 0, "bytes come back as they went");

    is_int(drv.cuMemcpyHtoDAsync(words, in, 0, side), 0,
           "a copy of 0 bytes is fine");
}

static void test_pinned_copies_follow_the_stream(void)
{
    pinned[0] = 77;
    drv.cuMemcpyHtoDAsync(word(1), &pinned[0], WORD, side);
    drv.cuMemcpyDtoDAsync(word(2), word(1), WORD, side);
    drv.cuMemcpyDtoHAsync(&pinned[1], word(2), WORD, side);
    is_int(drv.cuStreamSynchronize(side), 0, "three copies run");
    is_int(pinned[1], 77, "copies of one stream run in order");
}

static void test_pageable_source_is_read_at_once(void)
{
    uint32_t value = 5, back = 0;

    is_int(drv.cuMemcpyHtoDAsync(word(3), &value, WORD, side), 0,
           "an asynchronous copy takes pageable memory");
    value = 6;
    drv.cuStreamSynchronize(side);
    is_int(word_at(word(3)), 5, "a pageable source may change after the call");

    is_int(drv.cuMemcpyDtoHAsync(&back, word(3), WORD, side), 0,
           "an asynchronous copy fills pageable memory");
    is_int(back, 5, "a pageable destination is filled when the call returns");
}

static void test_memsets(void)
{
    is_int(drv.cuMemsetD8Async(word(16), 0xAB, 4 * WORD, side), 0,
           "cuMemsetD8Async works");
    is_int(drv.cuMemsetD32Async(word(17), 0x01020304, 2, side), 0,
           "cuMemsetD32Async works");
    is_int(word_at(word(16)), 0xABABABAB, "bytes are set");
    is_int(word_at(word(18)), 0x01020304, "words are set");
    is_int(word_at(word(19)), 0xABABABAB, "a memset ends where it should");
    is_int(drv.cuMemsetD8Async(words, 1, 0, side), 0,
           "a memset of nothing is fine");
}

static void test_freeing_waits_for_work(void)
{
    CUdeviceptr address = 0;

    drv.cuMemAlloc(&address, WORDS * WORD);
    drv.cuMemsetD32Async(address, 9, WORDS, side);
    drv.cuMemcpyDtoHAsync(pinned, address, WORD, side);
    is_int(drv.cuMemFree(address), 0, "memory in use may be freed");
    is_int(drv.cuStreamSynchronize(side), 0, "the work before it ran");
    is_int(pinned[0], 9, "work issued before cuMemFree saw its memory");
}

static void test_no_context(void)
{
    CUdeviceptr address;
    size_t a, b;

    drv.cuCtxSetCurrent(NULL);
    is_int(drv.cuMemAlloc(&address, 64), 201, "cuMemAlloc needs a context");
    is_int(drv.cuMemGetInfo(&a, &b), 201, "cuMemGetInfo needs a context");
    is_int(drv.cuMemsetD8Async(words, 0, 4, NULL), 201,
           "the legacy stream needs a context");
    is_int(drv.cuMemsetD8Async(words, 0, 4, side), 0,
           "a stream brings its context");
    drv.cuCtxSetCurrent(ctx);
}

static void test_device_and_errors(void)
{
    const char *text = NULL;
    char name[8];
    int value = 0;
    CUdevice device = -1;
    CUcontext current = NULL;

    is_int(drv.cuGetErrorName(906, &text), 0, "an error has a name");
    is_str(text, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "906 is IMPLICIT");
    is_int(drv.cuGetErrorString(1, &text), 0, "an error has a text");
    is_str(text, "invalid argument", "1 is an invalid argument");
    is_int(drv.cuGetErrorName(12345, &text), 1, "12345 is no error");
    ok(text == NULL, "what is no error has no name");

    is_int(drv.cuDeviceGet(&device, 0), 0, "there is a device 0");
    is_int(drv.cuDeviceGet(&device, 4096), 101, "there is no device 4096");
    is_int(drv.cuDeviceGet(&device, -1), 101, "there is no device -1");
    is_int(drv.cuDeviceGetName(name, sizeof(name), 0), 0, "it has a name");
    ok(strlen(name) < sizeof(name), "the name is cut to fit");
    is_int(drv.cuDeviceGetAttribute(
               &value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
           0, "multiprocessors are counted");
    ok(value > 0, "there are multiprocessors");
    is_int(drv.cuDeviceGetAttribute(
               &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0),
           0, "the compute capability is told");
    ok(value >= 7, "it is 7 or more");
    is_int(drv.cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, 0), 1,
           "there is no attribute 100000");
    is_int(drv.cuDeviceGetAttribute(
               &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, -1),
           101, "nor one of device -1");
    is_int(drv.cuDeviceGetName(name, 0, 0), 1, "nor a name of no bytes");
    is_int(drv.cuDriverGetVersion(&value), 0, "the driver has a version");
    ok(value >= 11040, "it is 11.4 or newer");

    is_int(drv.cuCtxGetDevice(&device), 0, "the context has a device");
    is_int(device, 0, "it is device 0");
    is_int(drv.cuCtxGetCurrent(&current), 0, "the current context is told");
    ok(current == ctx, "it is the one that was set");
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    test_bad_arguments();
    test_freeing_nothing_is_fine();
    test_info_counts_what_is_taken();
    test_copies_round_trip();
    test_pinned_copies_follow_the_stream();
    test_pageable_source_is_read_at_once();
    test_memsets();
    test_freeing_waits_for_work();
    test_no_context();
    test_device_and_errors();
    contract_close();
    return done_testing();
}
