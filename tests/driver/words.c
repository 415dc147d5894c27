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

/* ---- several in one call ------------------------------------------------- */

static CUstreamBatchMemOpParams await(CUdeviceptr at, uint32_t value)
{
    CUstreamBatchMemOpParams op;

    memset(&op, 0, sizeof(op));
    op.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = at;
    op.waitValue.value = value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return op;
}

static CUstreamBatchMemOpParams poke(CUdeviceptr at, uint32_t value)
{
    CUstreamBatchMemOpParams op;

    memset(&op, 0, sizeof(op));
    op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = at;
    op.writeValue.value = value;
    return op;
}

static void test_bad_batches(void)
{
    CUstreamBatchMemOpParams ops[256];

    for (int i = 0; i < 256; i++) {
        ops[i] = poke(word(20), 9);
    }
    ok(drv.cuStreamBatchMemOp(side, 256, ops, 0) != CUDA_SUCCESS,
       "256 operations are too many for one call");
    ok(drv.cuStreamBatchMemOp(side, 1, ops, 1) != CUDA_SUCCESS,
       "there are no flags of a call");
    ops[1].operation = 77;
    ok(drv.cuStreamBatchMemOp(side, 2, ops, 0) != CUDA_SUCCESS,
       "each operation is one that there is");
    ops[1] = poke(word(20) + 2, 9);
    ok(drv.cuStreamBatchMemOp(side, 2, ops, 0) != CUDA_SUCCESS,
       "and its word is aligned");
    drv.cuStreamSynchronize(side);
    set(word(20), 1);
    ops[1] = poke(word(21), 9);
    is_int(drv.cuStreamBatchMemOp(side, 255, ops, 0), 0, "255 are fine");
    drv.cuStreamSynchronize(side);
    is_int(word_at(word(20)), 9, "and done");
}

static void test_batch(void)
{
    CUstreamBatchMemOpParams ops[] = { await(word(22), 1), await(word(23), 1),
                                       poke(word(22), 0), poke(word(23), 0),
                                       poke(word(24), 5) };

    set(word(22), 0);
    set(word(23), 0);
    set(word(24), 0);
    is_int(drv.cuStreamBatchMemOp(side, 5, ops, 0), 0,
           "waits and writes are one call");
    drv.cuMemcpyDtoDAsync(word(25), word(24), WORD, side);
    set(word(23), 1);
    ok(stands(side), "the stream stands still for the first");
    drv.cuMemcpyDtoHAsync(pinned, word(23), WORD, other);
    drv.cuStreamSynchronize(other);
    is_int(pinned[0], 1, "and nothing of what follows it is done");
    set(word(22), 1);
    is_int(drv.cuStreamSynchronize(side), 0, "with both it goes on");
    ok(word_at(word(22)) == 0 && word_at(word(23)) == 0,
       "both flags are down");
    is_int(word_at(word(25)), 5, "what follows comes after all of the call");
}

static void test_batch_in_a_graph(void)
{
    CUstreamBatchMemOpParams ops[] = { await(word(26), 1), poke(word(26), 0) };
    CUgraphExec exec;
    CUgraph graph;

    set(word(26), 0);
    set(word(27), 0);
    set(word(28), 1);
    begin(side);
    is_int(drv.cuStreamBatchMemOp(side, 2, ops, 0), 0, "a call is captured");
    launch_add(side, word(27), word(28));
    graph = end_graph(side);
    exec = instantiate(graph);
    for (uint32_t i = 1; i <= 3; i++) {
        drv.cuGraphLaunch(exec, side);
        ok(stands(side), "launch %u stands still", i);
        set(word(26), 1);
        is_int(drv.cuStreamSynchronize(side), 0, "and goes on when told");
        is_int(word_at(word(27)), i, "its kernel has run");
    }
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

/* Each by a copy of one byte, from others that know nothing of each other. */
static void test_bytes_of_a_word(void)
{
    CUstreamBatchMemOpParams ops[] = { await(word(30), 0x01000101),
                                       poke(word(30), 0) };
    CUevent told = new_event(CU_EVENT_DISABLE_TIMING);
    CUstream third = new_stream(CU_STREAM_NON_BLOCKING);

    set(word(30), 0);
    set(word(31), 0x01010101);
    set(word(32), 0);
    set(word(33), 0);
    drv.cuEventRecord(told, other);
    drv.cuStreamWaitEvent(third, told, 0);
    drv.cuStreamWaitEvent(side, told, 0);
    is_int(drv.cuStreamBatchMemOp(side, 2, ops, 0), 0,
           "a word is waited for that others write by bytes");
    drv.cuMemcpyDtoDAsync(word(34), word(32), WORD, side);
    drv.cuMemcpyDtoDAsync(word(35), word(33), WORD, side);
    drv.cuMemcpyDtoDAsync(word(30) + 1, word(31), 1, other);
    drv.cuMemsetD32Async(word(32), 11, 1, other);
    drv.cuMemcpyDtoDAsync(word(30), word(31), 1, other);
    ok(stands(side), "with two of three it stands still");
    drv.cuMemsetD32Async(word(33), 22, 1, third);
    drv.cuMemcpyDtoDAsync(word(30) + 3, word(31), 1, third);
    is_int(drv.cuStreamSynchronize(side), 0, "with the third it goes on");
    ok(word_at(word(34)) == 11 && word_at(word(35)) == 22,
       "and comes after what each of them did before");
    is_int(word_at(word(30)), 0, "all bytes are down");
    drv.cuStreamDestroy(third);
    drv.cuEventDestroy(told);
}

static void test_batches(void)
{
    if (drv.cuStreamBatchMemOp == NULL) {
        skip(1, "the driver is older than CUDA 11.7");
        return;
    }
    test_bad_batches();
    test_batch();
    test_batch_in_a_graph();
    test_bytes_of_a_word();
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
    test_batches();
    test_ranges();
    test_handles();
    contract_close();
    return done_testing();
}
