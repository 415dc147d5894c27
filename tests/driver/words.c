/* Streams that wait for words of memory and write them, in graphs too; and
 * memory that other processes reach. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

#include <string.h>

static void set(CUdeviceptr address, uint32_t value)
{
    drv.cuMemsetD32Async(address, value, 1, other);
    drv.cuStreamSynchronize(other);
}

/* Whether the stream stands still, a while after all else has been done. */
static bool stands(CUstream stream)
{
    for (int i = 0; i < 100; i++) {
        drv.cuStreamSynchronize(other);
        if (drv.cuStreamQuery(stream) == CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

static void test_bad_words(void)
{
    ok(drv.cuStreamWaitValue32(side, words + 2, 0, 0) != CUDA_SUCCESS,
       "a word to wait for is aligned");
    ok(drv.cuStreamWriteValue32(side, words + 2, 0, 0) != CUDA_SUCCESS,
       "so is one to write");
    ok(drv.cuStreamWaitValue32(side, 0, 0, 0) != CUDA_SUCCESS,
       "no word is none to wait for");
    ok(drv.cuStreamWriteValue32(side, 0, 0, 0) != CUDA_SUCCESS,
       "nor to write");
}

static void test_conditions(void)
{
    static const struct {
        const char *name;
        unsigned int how;
        uint32_t below, wanted, up;
    } rows[] = {
        { "GEQ", CU_STREAM_WAIT_VALUE_GEQ, 4, 5, 6 },
        { "GEQ in a circle", CU_STREAM_WAIT_VALUE_GEQ, 0xfffffffeu, 1, 2 },
        { "EQ", CU_STREAM_WAIT_VALUE_EQ, 6, 5, 5 },
        { "AND", CU_STREAM_WAIT_VALUE_AND, 2, 5, 4 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set(word(0), rows[i].below);
        is_int(drv.cuStreamWaitValue32(side, word(0), rows[i].wanted,
                                       rows[i].how),
               0, "a wait for %s is issued", rows[i].name);
        drv.cuMemsetD32Async(word(1), (unsigned)i + 100, 1, side);
        ok(stands(side), "the stream stands still before %s", rows[i].name);
        set(word(0), rows[i].up);
        is_int(drv.cuStreamSynchronize(side), 0, "and goes on with it");
        is_int(word_at(word(1)), (long long)i + 100, "what follows is done");
    }
}

static void test_writes(void)
{
    is_int(drv.cuStreamWriteValue32(side, word(2), 77, 0), 0,
           "a stream writes a word");
    is_int(drv.cuStreamWaitValue32(other, word(2), 77,
                                   CU_STREAM_WAIT_VALUE_EQ),
           0, "that another waits for");
    is_int(drv.cuStreamSynchronize(other), 0, "which goes on");
    is_int(word_at(word(2)), 77, "and it is there");
    set(word(4), 1);
    set(word(5), 0);
    drv.cuStreamWriteValue64(side, word(4), UINT64_C(0x500000007), 0);
    drv.cuStreamWaitValue64(side, word(4), UINT64_C(0x500000007),
                            CU_STREAM_WAIT_VALUE_EQ);
    is_int(drv.cuStreamSynchronize(side), 0, "a word of 64 bits is as good");
    is_int(word_at(word(5)), 5, "and written whole");
}

/* A copy of 4 bytes is what one device tells another by. */
static void test_a_copy_is_a_flag(void)
{
    set(word(6), 0);
    set(word(7), 1);
    set(word(8), 0);
    drv.cuStreamWaitValue32(side, word(6), 1, CU_STREAM_WAIT_VALUE_GEQ);
    drv.cuMemcpyDtoDAsync(word(9), word(8), WORD, side);
    drv.cuStreamWriteValue32(side, word(6), 0, 0);
    drv.cuMemsetD32Async(word(8), 123, 1, other);
    drv.cuMemcpyDtoDAsync(word(6), word(7), WORD, other);
    is_int(drv.cuStreamSynchronize(side), 0,
           "a stream that waits for a copy goes on");
    is_int(word_at(word(9)), 123, "and reads what was written before it");
    is_int(word_at(word(6)), 0, "the flag is down again");
}

static void test_in_a_graph(void)
{
    CUgraphExec exec;
    CUgraph graph;

    set(word(10), 0);
    set(word(11), 0);
    set(word(12), 1);
    is_int(begin(side), 0, "a capture begins");
    is_int(drv.cuStreamWaitValue32(side, word(10), 1,
                                   CU_STREAM_WAIT_VALUE_EQ),
           0, "a wait is captured");
    launch_add(side, word(11), word(12));
    is_int(drv.cuStreamWriteValue32(side, word(10), 0, 0), 0,
           "and a write after it");
    graph = end_graph(side);
    exec = instantiate(graph);
    for (uint32_t i = 1; i <= 5; i++) {
        is_int(drv.cuGraphLaunch(exec, side), 0, "launch %u is issued", i);
        ok(stands(side), "it stands still");
        drv.cuMemcpyDtoDAsync(word(10), word(12), WORD, other);
        is_int(drv.cuStreamSynchronize(side), 0, "and goes on when told");
        is_int(word_at(word(11)), i, "its kernel has run");
        is_int(word_at(word(10)), 0, "and the flag is down for the next");
    }
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_ranges(void)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;

    is_int(drv.cuMemGetAddressRange(&base, &bytes, word(5)), 0,
           "an address within an allocation is asked for");
    ok(base <= words && base + bytes >= words + WORDS * WORD,
       "the range holds the allocation");
}

static void test_handles(void)
{
    CUdeviceptr memory = 0, opened = 0;
    CUipcMemHandle handle, bad;
    CUresult code;

    drv.cuMemAlloc(&memory, (size_t)2 << 20);
    is_int(drv.cuIpcGetMemHandle(&handle, memory), 0,
           "device memory has a handle for other processes");
    code = drv.cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)pinned);
    ok(code != CUDA_SUCCESS, "pinned memory has none: %d", code);
    is_int(drv.cuIpcGetMemHandle(&handle, memory), 0, "it is had again");
    code = drv.cuIpcOpenMemHandle(&opened, handle,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    ok(code != CUDA_SUCCESS, "the process itself cannot open it: %d", code);
    memset(&bad, 0x5a, sizeof(bad));
    code = drv.cuIpcOpenMemHandle(&opened, bad,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    ok(code != CUDA_SUCCESS, "nor is any other a handle: %d", code);
    ok(drv.cuIpcCloseMemHandle(memory) != CUDA_SUCCESS,
       "what was not opened is not closed");
    drv.cuMemFree(memory);
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    test_bad_words();
    test_conditions();
    test_writes();
    test_a_copy_is_a_flag();
    test_in_a_graph();
    test_ranges();
    test_handles();
    contract_close();
    return done_testing();
}
