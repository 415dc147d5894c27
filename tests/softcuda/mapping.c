/* Work that finds no memory at its addresses is reported, with its name; so is
 * who reads memory that was mapped again and not written since. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 }
};
static const CUmemAccessDesc access_desc = {
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static CUdeviceptr range;

static CUresult map_without_access(void)
{
    CUmemGenericAllocationHandle memory = 0;
    CUresult code = drv.cuMemCreate(&memory, GRANULE, &prop, 0);

    if (code == CUDA_SUCCESS) {
        code = drv.cuMemMap(range, GRANULE, 0, memory, 0);
        drv.cuMemRelease(memory);
    }
    return code;
}

static void map(void)
{
    if (map_without_access() != CUDA_SUCCESS ||
        drv.cuMemSetAccess(range, GRANULE, &access_desc, 1) != CUDA_SUCCESS) {
        ok(false, "memory is mapped");
    }
}

/* How many uses were reported; the context is whole again. */
static uint64_t found(void)
{
    const uint64_t n = soft.unmapped(0, NULL);
    CUcontext context;

    if (drv.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS) {
        while (drv.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS) {
            /* until the last */
        }
        drv.cuDevicePrimaryCtxRetain(&context, 0);
    }
    return n > soft.unmapped(0, NULL) ? n : soft.unmapped(0, NULL);
}

static bool says(const char *words_of_it)
{
    const char *text = NULL;

    soft.unmapped(0, &text);
    return text != NULL && strstr(text, words_of_it) != NULL;
}

static void test_each_use_is_reported(void)
{
    configure("SEED=0");
    is_int(found(), 0, "nothing is reported before");
    launch_store(side, range, 1);
    is_int(found(), 1, "a kernel without memory is reported");
    ok(says("store") && says("no memory is mapped"), "by its name");
    configure("SEED=0");
    drv.cuMemsetD8Async(range, 1, 64, side);
    is_int(found(), 1, "a memset is");
    configure("SEED=0");
    drv.cuMemcpyDtoDAsync(words, range, 64, side);
    is_int(found(), 1, "a copy from there is");
    configure("PAGEABLE=1");
    launch_store(side, range, 1);
    is_int(found(), 1, "also where work reaches all memory of the process");
    configure("SEED=0");
}

static void test_a_graph_that_is_launched_without_memory(void)
{
    CUgraph graph;
    CUgraphExec exec;

    configure("SEED=0");
    map();
    begin(side);
    launch_store(side, range, 1);
    graph = end_graph(side);
    exec = instantiate(graph);
    drv.cuGraphLaunch(exec, side);
    is_int(found(), 0, "a graph with its memory is not reported");
    drv.cuMemUnmap(range, GRANULE);
    drv.cuGraphLaunch(exec, side);
    is_int(found(), 1, "the graph without its memory is");
    ok(says("graph"), "and it is named as a graph's");
    configure("SEED=0");
    map();
    drv.cuGraphLaunch(exec, side);
    is_int(found(), 0, "with memory again it is not");
    drv.cuMemUnmap(range, GRANULE);
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_what_was_not_restored(void)
{
    uint32_t value = 0;

    configure("SEED=0");
    map();
    drv.cuMemsetD32Async(range, 5, 16, side);
    launch_add(side, words, range);
    reported(0, "a read of what was written");
    drv.cuMemUnmap(range, GRANULE);
    map();
    drv.cuMemcpyDtoH(&value, range, WORD);
    ok(value != 5, "memory that is mapped again holds something else");
    reported(1, "a read of it");
    drv.cuMemsetD32Async(range, 5, 16, side);
    configure("SEED=0");
    launch_add(side, words, range);
    reported(0, "a read of what was written again");
    drv.cuMemUnmap(range, GRANULE);
}

/* Unmapping does not wait: what it should have waited for is found. */
static void test_a_wait_that_is_missing(void)
{
    uint64_t n = 0;

    for (int seed = 1; seed <= 8; seed++) {
        configure("SEED=%d", seed);
        map();
        for (uint32_t i = 0; i < 20; i++) {
            launch_store(side, range + i * WORD, i);
            launch_store(other, range + (100 + i) * WORD, i);
        }
        drv.cuMemUnmap(range, GRANULE);
        n += found() != 0;

        configure("SEED=%d", seed);
        map();
        for (uint32_t i = 0; i < 20; i++) {
            launch_store(side, range + i * WORD, i);
        }
        drv.cuStreamSynchronize(side);
        drv.cuMemUnmap(range, GRANULE);
        is_int(found(), 0, "with the wait nothing is reported under seed %d",
               seed);
    }
    ok(n > 0, "without it work is found that has no memory any more");
    configure("SEED=0");
}

static void test_access(void)
{
    configure("SEED=0");
    is_int(map_without_access(), 0, "memory is mapped without access");
    launch_store(side, range, 1);
    is_int(found(), 1, "who uses it is reported");
    is_int(drv.cuMemUnmap(range, GRANULE), 0, "it is unmapped");
    configure("SEED=0");
}

static void test_refusals(void)
{
    CUmemGenericAllocationHandle memory = 0, second = 0;
    CUgraph graph;

    is_int(drv.cuMemUnmap(range, GRANULE), 1, "nothing is unmapped twice");
    is_int(drv.cuMemSetAccess(range, GRANULE, &access_desc, 1), 1,
           "nobody gets access to nothing");
    drv.cuMemCreate(&memory, GRANULE, &prop, 0);
    is_int(drv.cuMemMap(words, GRANULE, 0, memory, 0), 1,
           "memory is mapped to reserved addresses alone");
    is_int(drv.cuMemMap(range + 4096, GRANULE, 0, memory, 0), 1,
           "and at multiples of the granularity");
    is_int(drv.cuMemMap(range, GRANULE, 0, memory, 0), 0, "it is mapped");
    is_int(drv.cuMemMap(range, GRANULE, 0, memory, 0), 1, "and not twice");
    drv.cuMemCreate(&second, GRANULE, &prop, 0);
    is_int(drv.cuMemMap(range, GRANULE, 0, second, 0), 1,
           "nor is other memory mapped over it");
    is_int(drv.cuMemAddressFree(range, GRANULE), 1,
           "addresses with memory are not given back");
    is_int(drv.cuMemUnmap(range, GRANULE / 2), 1,
           "half of a mapping is not unmapped");
    is_int(drv.cuMemRelease(second), 0, "a handle is released");
    is_int(drv.cuMemRelease(second), 1, "and not twice");
    begin(side);
    is_int(drv.cuMemUnmap(range, GRANULE), 900,
           "a global capture forbids it, as it forbids cuMemFree");
    drv.cuStreamEndCapture(side, &graph);
    drv.cuMemUnmap(range, GRANULE);
    drv.cuMemRelease(memory);
}

/* Memory of another process outlives what that process gives back. */
static void test_what_its_owner_has_given_back(void)
{
    const CUmemAllocationHandleType type =
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp shared = prop;
    CUmemGenericAllocationHandle memory = 0, imported = 0;
    int file = -1;

    configure("SEED=0");
    drv.cuMemCreate(&memory, GRANULE, &prop, 0);
    is_int(drv.cuMemExportToShareableHandle(&file, memory, type, 0), 1,
           "memory that is not to be shared has no descriptor");
    drv.cuMemRelease(memory);
    shared.requestedHandleTypes = type;
    drv.cuMemCreate(&memory, GRANULE, &shared, 0);
    is_int(drv.cuMemExportToShareableHandle(&file, memory, type, 0), 0,
           "other memory has");
    is_int(drv.cuMemImportFromShareableHandle(
               &imported, (void *)(intptr_t)file, type),
           0, "and is imported");
    close(file);
    drv.cuMemMap(range, GRANULE, 0, imported, 0);
    drv.cuMemSetAccess(range, GRANULE, &access_desc, 1);
    launch_store(side, range, 1);
    is_int(found(), 0, "who uses it is not reported");
    drv.cuMemRelease(memory);
    launch_store(side, range, 1);
    is_int(found(), 1, "until its owner gives it back");
    ok(says("uses memory of another process") &&
           says("which that process has given back"),
       "and the text says so");
    is_int(drv.cuMemUnmap(range, GRANULE), 0, "it is unmapped");
    drv.cuMemRelease(imported);
    file = open("/dev/null", O_RDWR);
    is_int(drv.cuMemImportFromShareableHandle(
               &imported, (void *)(intptr_t)file, type),
           1, "another file is no memory");
    close(file);
    configure("SEED=0");
}

static void test_devices_without(void)
{
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr address = 0;
    size_t bytes;
    int can = 1;

    configure("MAPPING=0");
    drv.cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    is_int(can, 0, "the attribute says that memory cannot be mapped");
    is_int(drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0), 801,
           "no addresses are reserved then");
    is_int(drv.cuMemCreate(&memory, GRANULE, &prop, 0), 801,
           "nor is memory made");
    is_int(drv.cuMemGetAllocationGranularity(&bytes, &prop, 0), 801,
           "and there is no granularity");
    configure("SEED=0");
}

static void test_counts(void)
{
    softcuda_counts before = counts(), during;
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr other = 0;

    map();
    during = counts();
    is_int(during.device_bytes - before.device_bytes, GRANULE,
           "mapped memory is counted");
    before = counts();
    drv.cuMemAddressReserve(&other, GRANULE, 0, 0, 0);
    during = counts();
    is_int(during.device_allocations - before.device_allocations, 1,
           "reserved addresses are counted");
    is_int(during.device_bytes - before.device_bytes, 0, "without bytes");
    drv.cuMemAddressFree(other, GRANULE);
    is_int(counts().device_allocations - before.device_allocations, 0,
           "until they are given back");
    drv.cuMemUnmap(range, GRANULE);
    configure("MEMORY=4194304");
    is_int(drv.cuMemCreate(&memory, 3 * GRANULE, &prop, 0), 2,
           "memory that is mapped is of the device's");
    configure("MEMORY=17179869184");
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    drv.cuMemAddressReserve(&range, GRANULE, 0, 0, 0);
    test_each_use_is_reported();
    test_a_graph_that_is_launched_without_memory();
    test_what_was_not_restored();
    test_a_wait_that_is_missing();
    test_access();
    test_refusals();
    test_what_its_owner_has_given_back();
    test_devices_without();
    test_counts();
    is_int(drv.cuMemAddressFree(range, GRANULE), 0,
           "the addresses are given back");
    contract_close();
    return done_testing();
}
