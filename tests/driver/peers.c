/* Two devices: whose memory is where, who reaches it, and copies between. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

#include <stdlib.h>

static CUcontext second;
static CUstream there;
static CUdeviceptr far;

static void test_devices(void)
{
    CUdevice device = -1;
    int count = 0;

    is_int(drv.cuDeviceGetCount(&count), 0, "the devices are counted");
    ok(count >= 2, "there are two devices or more");
    is_int(drv.cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE,
           "a device past the last is 101");
    ok(second != ctx, "each device has a primary context of its own");
    drv.cuCtxSetCurrent(second);
    is_int(drv.cuCtxGetDevice(&device), 0, "the second context is asked");
    is_int(device, 1, "the second context is of device 1");
    drv.cuCtxSetCurrent(ctx);
    drv.cuCtxGetDevice(&device);
    is_int(device, 0, "the first is of device 0");
}

static void test_who_may(void)
{
    int can = 7;

    is_int(drv.cuDeviceCanAccessPeer(NULL, 0, 1), CUDA_ERROR_INVALID_VALUE,
           "an answer wants a place");
    is_int(drv.cuDeviceCanAccessPeer(&can, 0, 99), CUDA_ERROR_INVALID_DEVICE,
           "device 99 is no peer");
    is_int(drv.cuDeviceCanAccessPeer(&can, 0, 0), 0, "a device is asked");
    is_int(can, 0, "a device is no peer of itself");
    is_int(drv.cuCtxEnablePeerAccess(second, 1), CUDA_ERROR_INVALID_VALUE,
           "peer access has no flags");
    is_int(drv.cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT,
           "no context is no peer");
    is_int(drv.cuCtxEnablePeerAccess(ctx, 0), CUDA_ERROR_INVALID_CONTEXT,
           "a context is no peer of itself");
    is_int(drv.cuCtxDisablePeerAccess(second),
           CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
           "what is not on cannot be switched off");
}

static uint32_t far_word(uint32_t i)
{
    uint32_t value = 0xBAD;

    drv.cuCtxSetCurrent(second);
    drv.cuCtxSynchronize();
    drv.cuMemcpyDtoH(&value, far + (CUdeviceptr)i * WORD, WORD);
    drv.cuCtxSetCurrent(ctx);
    return value;
}

static void test_copies_between(void)
{
    CUevent done = new_event(CU_EVENT_DISABLE_TIMING);
    uint32_t mine = 44;

    drv.cuMemsetD32Async(words, 41, 4, side);
    is_int(drv.cuMemcpyPeerAsync(far, second, words, ctx, 4 * WORD, side), 0,
           "memory is copied to a device that is not reached");
    drv.cuStreamSynchronize(side);
    is_int(far_word(3), 41, "the other device has it");
    is_int(drv.cuMemcpyPeerAsync(far, second, words, NULL, WORD, side),
           CUDA_ERROR_INVALID_CONTEXT, "a copy wants both contexts");

    drv.cuMemsetD32Async(words, 42, 1, side);
    is_int(drv.cuMemcpyDtoDAsync(far, words, WORD, side), 0,
           "addresses of two devices are enough for a copy");
    drv.cuEventRecord(done, side);
    is_int(drv.cuStreamWaitEvent(there, done, 0), 0,
           "a stream of one device waits for an event of the other");
    is_int(drv.cuMemcpyAsync(word(8), far, WORD, there), 0,
           "a copy by addresses alone goes back");
    drv.cuStreamSynchronize(there);
    is_int(word_at(word(8)), 42, "and brings what was there");
    pinned[0] = 43;
    is_int(drv.cuMemcpyAsync(far, (CUdeviceptr)(uintptr_t)pinned, WORD, there),
           0, "pinned memory serves both devices");
    drv.cuStreamSynchronize(there);
    is_int(far_word(0), 43, "and its bytes arrive");
    is_int(drv.cuMemcpyAsync(far, (CUdeviceptr)(uintptr_t)&mine, WORD, there),
           0, "memory of the program is told from a device's");
    mine = 0;
    drv.cuStreamSynchronize(there);
    is_int(far_word(0), 44, "and taken as it is at the call");
    drv.cuEventDestroy(done);
}

static void test_events_are_of_a_device(void)
{
    CUevent mine = new_event(CU_EVENT_DISABLE_TIMING);

    is_int(drv.cuEventRecord(mine, there), CUDA_ERROR_INVALID_HANDLE,
           "an event of one device is not recorded on a stream of another");
    is_int(launch_store(there, far, 1), CUDA_ERROR_INVALID_HANDLE,
           "nor does a kernel that is loaded on one run on the other");
    drv.cuEventDestroy(mine);
}

static void test_a_kernel_that_reaches(void)
{
    int can = 0;

    drv.cuDeviceCanAccessPeer(&can, 0, 1);
    if (!can) {
        skip(6, "these two devices do not reach each other");
        return;
    }
    is_int(drv.cuCtxEnablePeerAccess(second, 0), 0, "peer access is on");
    is_int(drv.cuCtxEnablePeerAccess(second, 0),
           CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "once is enough");
    is_int(launch_store(side, far, 77), 0, "a kernel writes on the other");
    is_int(drv.cuStreamSynchronize(side), 0, "which is no wild access then");
    is_int(far_word(0), 77, "and its bytes are there");
    is_int(drv.cuCtxDisablePeerAccess(second), 0, "peer access is off");
}

static void test_memory_is_of_a_device(void)
{
    size_t here[2], beside[2], total;
    CUdeviceptr big = 0;
    const size_t bytes = (size_t)64 << 20;

    drv.cuMemGetInfo(&here[0], &total);
    drv.cuCtxSetCurrent(second);
    drv.cuMemGetInfo(&beside[0], &total);
    is_int(drv.cuMemAlloc(&big, bytes), 0, "64 MiB are had of device 1");
    drv.cuMemGetInfo(&beside[1], &total);
    drv.cuCtxSetCurrent(ctx);
    drv.cuMemGetInfo(&here[1], &total);
    ok(beside[1] + bytes <= beside[0], "device 1 has them less");
    if (contract_is_soft()) {
        is_int(here[1], here[0], "device 0 has what it had");
    } else {
        skip(1, "other programs use this device too");
    }
    is_int(drv.cuMemFree(big), 0, "any context frees memory of any device");
}

/* The last thing: the second context ends. */
static void test_access_ends_with_its_context(void)
{
    int can = 0;

    drv.cuDeviceCanAccessPeer(&can, 0, 1);
    if (!can) {
        drv.cuDevicePrimaryCtxRelease(1);
        skip(2, "these two devices do not reach each other");
        return;
    }
    is_int(drv.cuCtxEnablePeerAccess(second, 0), 0, "peer access is on");
    drv.cuDevicePrimaryCtxRelease(1);
    drv.cuDevicePrimaryCtxRetain(&second, 1);
    is_int(drv.cuCtxDisablePeerAccess(second),
           CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
           "it has ended with the context that it was for");
    drv.cuDevicePrimaryCtxRelease(1);
}

int main(void)
{
    int status, count = 0;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!contract_open(&status)) {
        return status;
    }
    if (drv.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 2) {
        contract_close();
        skip(1, "there is one device only");
        return done_testing();
    }
    drv.cuDevicePrimaryCtxRetain(&second, 1);
    drv.cuCtxSetCurrent(second);
    there = new_stream(CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&far, WORDS * WORD);
    drv.cuMemsetD8Async(far, 0, WORDS * WORD, there);
    drv.cuCtxSynchronize();
    drv.cuCtxSetCurrent(ctx);

    test_devices();
    test_who_may();
    test_copies_between();
    test_events_are_of_a_device();
    test_a_kernel_that_reaches();
    test_memory_is_of_a_device();

    drv.cuCtxSetCurrent(second);
    drv.cuMemFree(far);
    drv.cuStreamDestroy(there);
    drv.cuCtxSetCurrent(ctx);
    test_access_ends_with_its_context();
    contract_close();
    return done_testing();
}
