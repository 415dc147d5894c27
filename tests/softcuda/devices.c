/* Several devices under one seed: races are seen across them, memory that is
 * not reached is out of reach, and a device may be a process of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEVICES = 3,
    MANY = 64
};

static CUcontext contexts[DEVICES];
static CUstream streams[DEVICES];
static CUdeviceptr memory[DEVICES];
static CUfunction store[DEVICES];
static CUmodule modules[DEVICES];

static void on(int device)
{
    drv.cuCtxSetCurrent(contexts[device]);
}

static void open_devices(void)
{
    for (int i = 0; i < DEVICES; i++) {
        drv.cuDevicePrimaryCtxRetain(&contexts[i], i);
        on(i);
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
        drv.cuMemAlloc(&memory[i], WORDS * WORD);
        drv.cuMemsetD8Async(memory[i], 0, WORDS * WORD, streams[i]);
        drv.cuModuleLoadData(&modules[i], contract_image());
        drv.cuModuleGetFunction(&store[i], modules[i], "store");
        drv.cuCtxSynchronize();
    }
    on(0);
}

static void close_devices(void)
{
    for (int i = 0; i < DEVICES; i++) {
        on(i);
        drv.cuMemFree(memory[i]);
        drv.cuStreamDestroy(streams[i]);
        drv.cuModuleUnload(modules[i]);
        drv.cuDevicePrimaryCtxRelease(i);
    }
    on(0);
}

static CUresult put(int device, CUdeviceptr to, uint32_t value)
{
    void *params[] = { &to, &value };

    return drv.cuLaunchKernel(store[device], 1, 1, 1, 1, 1, 1, 0,
                              streams[device], params, NULL);
}

static void test_races_across_devices(int seed)
{
    CUevent event;

    configure("SEED=%d", seed);
    put(1, memory[1], 5);
    drv.cuMemcpyDtoDAsync(memory[0], memory[1], WORD, streams[0]);
    drv.cuStreamSynchronize(streams[0]);
    drv.cuStreamSynchronize(streams[1]);
    is_int(races(), 1,
           "a copy from another device that waits for nothing is a race");

    configure("SEED=%d", seed);
    on(1);
    event = new_event(CU_EVENT_DISABLE_TIMING);
    put(1, memory[1], 6);
    drv.cuEventRecord(event, streams[1]);
    on(0);
    drv.cuStreamWaitEvent(streams[0], event, 0);
    drv.cuMemcpyDtoDAsync(memory[0], memory[1], WORD, streams[0]);
    is_int(word_at(memory[0]), 6, "a copy that waits gets the value");
    is_int(races(), 0, "and races with nothing");
    drv.cuEventDestroy(event);
}

static void test_a_free_waits_for_all_devices(void)
{
    CUdeviceptr own;

    configure("SEED=3");
    on(0);
    drv.cuMemAlloc(&own, WORD);
    for (uint32_t i = 0; i < MANY; i++) {
        put(1, memory[1], i);
    }
    drv.cuMemFree(own);
    on(1);
    is_int(drv.cuStreamQuery(streams[1]), CUDA_SUCCESS,
           "when memory is freed, work of another device has ended");
    on(0);

    configure("SEED=3");
    put(1, memory[1], 7);
    drv.cuMemAlloc(&own, WORD);
    drv.cuMemFree(own);
    drv.cuMemcpyDtoDAsync(memory[0], memory[1], WORD, streams[0]);
    drv.cuStreamSynchronize(streams[0]);
    is_int(races(), 1, "but that is no order of this work and later one");
    configure("SEED=0");
}

static void test_seeds_order_all_devices(void)
{
    bool first = false, last = false;

    for (int seed = 1; seed <= 20; seed++) {
        uint32_t value;

        configure("SEED=%d RACES=0", seed);
        on(0);
        drv.cuCtxEnablePeerAccess(contexts[2], 0);
        put(0, memory[2], 10);
        put(2, memory[2], 20);
        on(2);
        value = word_at(memory[2]);
        on(0);
        drv.cuCtxSynchronize();
        on(2);
        value = word_at(memory[2]);
        first |= value == 10;
        last |= value == 20;
        on(0);
        drv.cuCtxDisablePeerAccess(contexts[2]);
    }
    ok(first && last, "a seed orders the streams of two devices either way");
    configure("SEED=0");
}

static void test_out_of_reach(void)
{
    configure("SEED=0");
    on(0);
    put(0, memory[1], 9);
    is_int(drv.cuStreamSynchronize(streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS,
           "a kernel that writes on a device out of reach is 700");
    on(1);
    is_int(drv.cuCtxSynchronize(), 0, "and the other device is as it was");
    on(0);
}

/* One thread waits for device 0, another issues on device 1. */
static void wait_on_first(void *unused)
{
    (void)unused;
    on(0);
    drv.cuStreamSynchronize(streams[0]);
}

static void processes(int many)
{
    configure("SEED=3 PROCESSES=%d", many);
    on(0);
    drv.cuCtxEnablePeerAccess(contexts[1], 0);
    put(0, memory[1], 1);
    on_thread(wait_on_first, NULL);
    on(1);
    put(1, memory[1], 2);
    drv.cuStreamSynchronize(streams[1]);
    on(0);
    drv.cuCtxDisablePeerAccess(contexts[1]);
}

static void test_a_device_is_a_process(void)
{
    processes(0);
    is_int(races(), 0, "what one thread has waited for, all threads know");
    processes(1);
    is_int(races(), 1, "unless each device is a process of its own");
    configure("SEED=0 PROCESSES=1");
    on(1);
    put(1, memory[1], 3);
    drv.cuStreamSynchronize(streams[1]);
    drv.cuMemcpyDtoDAsync(memory[1], memory[1] + 64, WORD, streams[1]);
    drv.cuCtxSynchronize();
    is_int(races(), 0, "which knows what it has waited for itself");
    configure("SEED=0");
    on(0);
}

/* Whether one more gather, which one of the two does not hear, still orders
 * what the other does. */
static void writes_after_a_gather(uint64_t number, uint64_t heard)
{
    configure("SEED=0 PROCESSES=1");
    on(0);
    drv.cuCtxEnablePeerAccess(contexts[1], 0);
    put(0, memory[1], 1);
    drv.cuStreamSynchronize(streams[0]);
    soft.gather(7, number, 1);
    on(1);
    soft.gather(7, number, 1);
    soft.gather(7, heard, 0);
    put(1, memory[1], 2);
    drv.cuStreamSynchronize(streams[1]);
    on(0);
    drv.cuCtxDisablePeerAccess(contexts[1]);
}

static void test_processes_bring_words_by_themselves(void)
{
    writes_after_a_gather(1, 1);
    is_int(races(), 0, "a process comes after what others have said before it");
    writes_after_a_gather(2, 1);
    is_int(races(), 1, "but not by an earlier gather");
    writes_after_a_gather(3, 5);
    is_int(races(), 1, "nor by one that nobody has begun");
    configure("SEED=0");
    on(0);
}

/* Streams that have gone are not taken for those that come after them by a
 * process that does not know it. */
static void test_streams_that_have_gone(void)
{
    CUstream gone[MANY];

    configure("SEED=0 PROCESSES=1");
    on(0);
    for (int i = 0; i < MANY; i++) {
        gone[i] = new_stream(CU_STREAM_NON_BLOCKING);
    }
    for (int i = 0; i < MANY; i++) {
        drv.cuMemsetD32Async(memory[0], 1, 4, gone[i]);
        drv.cuStreamSynchronize(gone[i]);
    }
    for (int i = 0; i < MANY; i++) {
        drv.cuStreamDestroy(gone[i]);
    }
    on(1);
    for (int i = 0; i < MANY; i++) {
        gone[i] = new_stream(CU_STREAM_NON_BLOCKING);
        drv.cuMemcpyDtoDAsync(memory[1] + 64, memory[0], WORD, gone[i]);
        drv.cuStreamSynchronize(gone[i]);
    }
    is_int(races(), MANY, "each stream of another process is a race");
    for (int i = 0; i < MANY; i++) {
        drv.cuStreamDestroy(gone[i]);
    }
    configure("SEED=0");
    on(0);
}

static size_t streams_come_and_go(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        configure("SEED=0 PROCESSES=1");
        for (int device = 0; device < 2; device++) {
            CUstream gone[8];

            on(device);
            for (int k = 0; k < 8; k++) {
                gone[k] = new_stream(CU_STREAM_NON_BLOCKING);
                drv.cuMemsetD32Async(memory[device] + 64 * k, 1, 4, gone[k]);
                drv.cuStreamSynchronize(gone[k]);
            }
            for (int k = 0; k < 8; k++) {
                drv.cuStreamDestroy(gone[k]);
            }
        }
    }
    on(0);
    return mallinfo2().uordblks;
}

static void test_memory_stays_flat(void)
{
    const size_t before = streams_come_and_go(20);
    const size_t after = streams_come_and_go(400);

    ok(after < before + 32768,
       "processes that never wait for each other take no more memory: %zu, "
       "then %zu bytes",
       before, after);
    configure("SEED=0");
}

static void test_a_process_has_its_own_time(void)
{
    uint64_t end[2];

    for (int many = 0; many < 2; many++) {
        configure("SEED=0 PROCESSES=%d", many);
        for (int i = 0; i < 100; i++) {
            on(i % 2);
            put(i % 2, memory[i % 2], 1);
        }
        end[many] = soft.clock();
    }
    ok(end[1] < end[0] * 6 / 10,
       "two processes issue side by side: %llu ns, by one %llu",
       (unsigned long long)end[1], (unsigned long long)end[0]);
    configure("SEED=0");
    on(0);
}

int main(void)
{
    int status;

    setenv("SOFTCUDA_DEVICES", "3", 1);
    if (!controls_open(&status)) {
        return status;
    }
    open_devices();
    test_races_across_devices(0);
    test_races_across_devices(5);
    test_a_free_waits_for_all_devices();
    test_seeds_order_all_devices();
    test_a_device_is_a_process();
    test_processes_bring_words_by_themselves();
    test_streams_that_have_gone();
    test_memory_stays_flat();
    test_a_process_has_its_own_time();
    contract_close();
    test_out_of_reach();
    close_devices();
    is_int(drv.cuCtxSetCurrent(contexts[2]), CUDA_ERROR_INVALID_CONTEXT,
           "a context that is released is none");
    return done_testing();
}
