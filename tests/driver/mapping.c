/* Memory is mapped to reserved addresses, taken away and mapped again, and a
 * graph finds the new memory where the old one was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

#include <unistd.h>

static size_t granule;

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 }
};
static const CUmemAccessDesc access_desc = {
    .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr range = 0;

    is_int(drv.cuMemAddressReserve(&range, bytes, 0, 0, 0), 0,
           "%zu granules are reserved", bytes / granule);
    return range;
}

/* The mapping keeps the memory, so its handle is released at once. */
static void map(CUdeviceptr at)
{
    CUmemGenericAllocationHandle memory = 0;

    is_int(drv.cuMemCreate(&memory, granule, &prop, 0), 0,
           "a granule of memory is there");
    is_int(drv.cuMemMap(at, granule, 0, memory, 0), 0, "it is mapped");
    is_int(drv.cuMemRelease(memory), 0, "its handle is released");
    is_int(drv.cuMemSetAccess(at, granule, &access_desc, 1), 0,
           "the device gets access");
}

static void unmap(CUdeviceptr at, size_t bytes)
{
    drv.cuCtxSynchronize();
    is_int(drv.cuMemUnmap(at, bytes), 0, "%zu granules are unmapped",
           bytes / granule);
}

static void test_bad_arguments(void)
{
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr range = 0;

    ok(granule != 0 && (granule & (granule - 1)) == 0,
       "the granularity is a power of two");
    is_int(drv.cuMemAddressReserve(&range, 0, 0, 0, 0), 1,
           "a range of 0 bytes is 1");
    is_int(drv.cuMemCreate(&memory, 0, &prop, 0), 1, "memory of 0 bytes is 1");
    is_int(drv.cuMemCreate(&memory, granule + 1, &prop, 0), 1,
           "memory of more than a granule and less than two is 1");
    is_int(drv.cuMemCreate(&memory, ((size_t)1 << 50), &prop, 0), 2,
           "more memory than there is answers 2");
}

static void test_mapped_memory_is_memory(void)
{
    CUdeviceptr range = reserve(2 * granule);
    const uint32_t in[2] = { 3, 4 };
    uint32_t out[2] = { 0, 0 };

    map(range);
    map(range + granule);
    is_int(launch_store(side, range, 7), 0, "a kernel writes there");
    is_int(word_at(range), 7, "and its word is there");
    is_int(drv.cuMemcpyHtoD(range, in, sizeof(in)), 0, "a copy writes there");
    drv.cuCtxSynchronize();
    is_int(drv.cuMemcpyDtoDAsync(range + granule, range, 8, side), 0,
           "a copy goes from one mapping to the next");
    is_int(drv.cuStreamSynchronize(side), 0, "and ends");
    is_int(drv.cuMemcpyDtoH(out, range + granule, 8), 0, "another one back");
    ok(out[0] == 3 && out[1] == 4, "with the bytes");
    is_int(drv.cuMemsetD32Async(range + 64, 9, 4, side), 0,
           "a memset writes there");
    is_int(word_at(range + 76), 9, "and its words are there");
    is_int(drv.cuMemFree(range), 1, "cuMemFree does not take it");
    unmap(range, 2 * granule);
    is_int(drv.cuMemAddressFree(range, 2 * granule), 0,
           "the addresses are given back");
}

static void test_a_graph_finds_new_memory(void)
{
    CUdeviceptr range = reserve(granule);
    CUgraph graph;
    CUgraphExec exec;

    map(range);
    drv.cuMemsetD32Async(range, 1, 64, side);
    begin(side);
    launch_add(side, range, range + 4);
    launch_store(side, range + 8, 5);
    graph = end_graph(side);
    exec = instantiate(graph);
    is_int(drv.cuGraphLaunch(exec, side), 0, "a graph runs on mapped memory");
    is_int(word_at(range), 2, "and adds there");
    for (uint32_t i = 0; i < 3; i++) {
        unmap(range, granule);
        map(range);
        drv.cuMemsetD32Async(range, 10 + i, 2, side);
        is_int(drv.cuGraphLaunch(exec, side), 0,
               "it runs again once memory is mapped again");
        is_int(word_at(range), 2 * (10 + i), "and adds what is there now");
        is_int(word_at(range + 8), 5, "and writes what it always writes");
    }
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    unmap(range, granule);
    drv.cuMemAddressFree(range, granule);
}

static void test_memory_is_given_back(void)
{
    const size_t bytes = 16 * granule;
    size_t before = 0, during = 0, after = 0, total;
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr range = reserve(bytes);

    drv.cuMemGetInfo(&before, &total);
    is_int(drv.cuMemCreate(&memory, bytes, &prop, 0), 0, "memory is made");
    is_int(drv.cuMemMap(range, bytes, 0, memory, 0), 0, "and mapped");
    is_int(drv.cuMemSetAccess(range, bytes, &access_desc, 1), 0,
           "and accessible");
    drv.cuMemGetInfo(&during, &total);
    is_int(drv.cuMemRelease(memory), 0, "its handle is released");
    unmap(range, bytes);
    drv.cuMemGetInfo(&after, &total);
    if (contract_is_soft()) {
        is_int(before - during, bytes, "mapped memory is taken");
        is_int(before - after, 0, "unmapped memory is given back");
    } else {
        skip(2, "other programs use the same device's memory");
    }
    drv.cuMemAddressFree(range, bytes);
}

/* What is imported is the same memory, at other addresses, and stays as long as
 * any of the two is mapped. */
static void test_memory_goes_by_a_descriptor(void)
{
    const CUmemAllocationHandleType type =
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp shared = prop;
    CUmemGenericAllocationHandle memory = 0, imported = 0;
    CUdeviceptr mine = reserve(granule), theirs = reserve(granule);
    int file = -1;

    shared.requestedHandleTypes = type;
    if (drv.cuMemCreate(&memory, granule, &shared, 0) != CUDA_SUCCESS) {
        skip(1, "the driver shares no memory by descriptors");
        return;
    }
    is_int(drv.cuMemExportToShareableHandle(&file, memory, type, 0), 0,
           "memory has a descriptor");
    is_int(drv.cuMemMap(mine, granule, 0, memory, 0), 0, "it is mapped");
    is_int(drv.cuMemRelease(memory), 0, "its handle is released");
    drv.cuMemSetAccess(mine, granule, &access_desc, 1);
    is_int(drv.cuMemImportFromShareableHandle(
               &imported, (void *)(intptr_t)file, type),
           0, "the descriptor is imported");
    is_int(close(file), 0, "and closed");
    is_int(drv.cuMemMap(theirs, granule, 0, imported, 0), 0,
           "what was imported is mapped elsewhere");
    is_int(drv.cuMemRelease(imported), 0, "and released");
    drv.cuMemSetAccess(theirs, granule, &access_desc, 1);
    drv.cuMemsetD32Async(mine, 7, 4, side);
    is_int(word_at(theirs + 4), 7, "what is written here is there");
    launch_store(side, theirs, 9);
    is_int(word_at(mine), 9, "and the other way round");
    unmap(mine, granule);
    is_int(word_at(theirs + 4), 7, "it stays as long as it is mapped there");
    unmap(theirs, granule);
    drv.cuMemAddressFree(mine, granule);
    drv.cuMemAddressFree(theirs, granule);
    is_int(drv.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)0,
                                              99),
           1, "an unknown type is 1");
}

int main(void)
{
    int status, can = 0;

    if (!contract_open(&status)) {
        return status;
    }
    drv.cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    if (can == 0) {
        return skip_all("the device maps no memory to addresses");
    }
    is_int(drv.cuMemGetAllocationGranularity(&granule, &prop,
                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM),
           0, "there is a granularity");
    test_bad_arguments();
    test_mapped_memory_is_memory();
    test_a_graph_finds_new_memory();
    test_memory_is_given_back();
    test_memory_goes_by_a_descriptor();
    contract_close();
    return done_testing();
}
