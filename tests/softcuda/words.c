/* A wait for a word comes after whoever wrote it and all that knew, and after
 * nothing else; dropped, it is a race. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

enum {
    FLAG = 0,
    DATA = 1,
    ONE = 2,
    BACK = 3, /* the flag of the other way */
    SEEN = 4
};

static void fresh(int seed, int drop)
{
    drv.cuCtxSynchronize();
    configure("SEED=0");
    drv.cuMemsetD32Async(words, 0, 8, side);
    drv.cuMemsetD32Async(word(ONE), 1, 1, side);
    drv.cuCtxSynchronize();
    configure("SEED=%d DROP_WAIT=%d", seed, drop);
}

static void tell(CUstream stream, uint32_t flag)
{
    drv.cuMemcpyDtoDAsync(word(flag), word(ONE), WORD, stream);
}

static void hear(CUstream stream, uint32_t flag)
{
    drv.cuStreamWaitValue32(stream, word(flag), 1, CU_STREAM_WAIT_VALUE_EQ);
    drv.cuStreamWriteValue32(stream, word(flag), 0, 0);
}

/* A hand-over of DATA, `rounds` times: 4 memory operations each. */
static void hand_over(uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        tell(other, BACK);
        hear(side, BACK);
        launch_store(side, word(DATA), i + 1);
        tell(side, FLAG);
        hear(other, FLAG);
        launch_add(other, word(SEEN), word(DATA));
    }
}

static void test_a_hand_over_is_in_order(void)
{
    uint64_t wrong = 0, found = 0;

    for (int seed = 0; seed < 40; seed++) {
        fresh(seed, 0);
        hand_over(3);
        drv.cuCtxSynchronize();
        found += races();
        wrong += word_at(word(SEEN)) != 6;
    }
    is_int(found, 0, "a hand-over by flags, there and back, is in order");
    is_int(wrong, 0, "and brings the right numbers, under 40 seeds");
}

/* A stream that is stuck for good is let go by the program. */
static void let_go(void)
{
    for (int i = 0; i < 100 && (drv.cuStreamQuery(side) != CUDA_SUCCESS ||
                                drv.cuStreamQuery(other) != CUDA_SUCCESS);
         i++) {
        tell(blocking, FLAG);
        tell(blocking, BACK);
        for (int j = 0; j < 10; j++) {
            drv.cuStreamQuery(side);
            drv.cuStreamQuery(other);
            drv.cuStreamQuery(blocking);
        }
    }
}

static void test_each_drop_is_a_race(void)
{
    for (int drop = 1; drop <= 4 * 2; drop++) {
        fresh(0, drop);
        hand_over(3);
        let_go();
        ok(races() != 0, "without memory operation %d there is a race", drop);
    }
}

static void test_what_is_not_ordered(void)
{
    fresh(0, 0);
    tell(side, FLAG);
    launch_store(side, word(DATA), 5);
    hear(other, FLAG);
    launch_add(other, word(SEEN), word(DATA));
    drv.cuCtxSynchronize();
    is_int(races(), 1, "what is written after the flag is not waited for");

    fresh(0, 0);
    launch_store(side, word(DATA), 5);
    drv.cuMemsetD32Async(words, 1, 1, blocking);
    hear(other, FLAG);
    launch_add(other, word(SEEN), word(DATA));
    drv.cuCtxSynchronize();
    is_int(races(), 1, "nor is what another than the flag's writer did");

    fresh(0, 0);
    tell(side, FLAG);
    tell(blocking, FLAG);
    hear(other, FLAG);
    drv.cuCtxSynchronize();
    ok(races() != 0, "two writers of one flag are a race");
}

/* Each byte of a flag may be another's, and each call have several of both. */
static void test_bytes(void)
{
    CUstreamBatchMemOpParams ops[2] = {
        { .waitValue = { CU_STREAM_MEM_OP_WAIT_VALUE_32, word(FLAG),
                         { 0x0101 }, CU_STREAM_WAIT_VALUE_EQ, 0 } },
        { .writeValue = { CU_STREAM_MEM_OP_WRITE_VALUE_32, word(FLAG), { 0 },
                          0, 0 } },
    };

    for (int drop = 0; drop <= 1; drop++) {
        fresh(0, drop);
        launch_store(side, word(DATA), 5);
        launch_store(blocking, word(BACK), 6);
        is_int(drv.cuStreamBatchMemOp(other, 2, ops, 0), 0,
               "a stream waits for two bytes, and takes them down");
        launch_add(other, word(SEEN), word(DATA));
        launch_add(other, word(SEEN), word(BACK));
        drv.cuMemcpyDtoDAsync(word(FLAG), word(ONE), 1, side);
        drv.cuMemcpyDtoDAsync(word(FLAG) + 1, word(ONE), 1, blocking);
        drv.cuCtxSynchronize();
        ok((races() == 0) == (drop == 0),
           drop == 0 ? "it comes after the writers of both"
                     : "without the wait there is a race");
        if (drop == 0) {
            is_int(word_at(word(SEEN)), 11, "and sees what they wrote");
        }
    }
    fresh(0, 0);
    ops[0].waitValue.value = 0;
    ops[1].writeValue.address++;
    is_int(drv.cuStreamBatchMemOp(other, 2, ops, 0), CUDA_ERROR_INVALID_VALUE,
           "a call of which one is wrong is refused");
    is_int((long long)counts().waits, 0, "and none of it is done");
    ops[0].waitValue.value = 0x0101;
    ops[1].writeValue.address--;

    fresh(0, 0);
    drv.cuMemsetD32Async(word(FLAG), 0x0001, 1, side);
    launch_store(side, word(DATA), 5);
    drv.cuStreamBatchMemOp(other, 2, ops, 0);
    launch_add(other, word(SEEN), word(DATA));
    drv.cuMemcpyDtoDAsync(word(FLAG) + 1, word(ONE), 1, blocking);
    drv.cuCtxSynchronize();
    is_int(races(), 2, "what follows a byte is not waited for, and a word that "
                       "is written whole has all bytes written");

    fresh(0, 0);
    launch_store(side, word(DATA), 5);
    tell(side, FLAG);
    drv.cuMemsetD8Async(word(FLAG) + 1, 0, 3, blocking);
    drv.cuMemsetD8Async(word(FLAG), 1, 1, blocking);
    hear(other, FLAG);
    launch_add(other, word(SEEN), word(DATA));
    drv.cuCtxSynchronize();
    is_int(races(), 2, "who wrote a word is not waited for once all of its "
                       "bytes are another's");
}

static CUgraphExec captured(CUstream stream, bool reader)
{
    CUgraph graph;
    CUgraphExec exec;

    begin(stream);
    if (reader) {
        hear(stream, FLAG);
        launch_add(stream, word(SEEN), word(DATA));
        tell(stream, BACK);
    } else {
        hear(stream, BACK);
        launch_add(stream, word(DATA), word(ONE));
        tell(stream, FLAG);
    }
    graph = end_graph(stream);
    exec = instantiate(graph);
    drv.cuGraphDestroy(graph);
    return exec;
}

static void test_graphs(void)
{
    uint64_t wrong = 0, found = 0;

    for (int seed = 0; seed < 40; seed++) {
        CUgraphExec writes, reads;

        fresh(seed, 0);
        writes = captured(side, false);
        reads = captured(other, true);
        tell(other, BACK);
        for (int i = 0; i < 5; i++) {
            drv.cuGraphLaunch(reads, other);
            drv.cuGraphLaunch(writes, side);
        }
        drv.cuCtxSynchronize();
        found += races();
        wrong += word_at(word(SEEN)) != 1 + 2 + 3 + 4 + 5;
        drv.cuGraphExecDestroy(writes);
        drv.cuGraphExecDestroy(reads);
    }
    is_int(found, 0, "graphs that wait for each other are in order");
    is_int(wrong, 0, "launched five times, under 40 seeds");
}

static void test_the_program_writes_too(void)
{
    const CUdeviceptr flag = (CUdeviceptr)(uintptr_t)pinned;

    fresh(3, 0);
    pinned[0] = 0;
    is_int(drv.cuStreamWaitValue32(side, flag, 1, CU_STREAM_WAIT_VALUE_GEQ), 0,
           "a stream waits for a word of pinned memory");
    is_int(drv.cuStreamQuery(side), CUDA_ERROR_NOT_READY, "and stands still");
    pinned[0] = 1;
    is_int(drv.cuStreamSynchronize(side), 0,
           "until the program itself writes it");
}

static void test_the_clock(void)
{
    fresh(0, 0);
    soft.costs("kernel store 5000\ncopy within 100\nlaunch 0\n"
               "call cuLaunchKernel 0\n");
    hear(other, FLAG);
    launch_store(side, word(DATA), 1);
    tell(side, FLAG);
    launch_store(other, word(SEEN), 1);
    is_int(soft.clock(), 5000 + 100 + 5000,
           "a wait takes as long as the work that it waits for");
    soft.costs(NULL);
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    test_a_hand_over_is_in_order();
    test_each_drop_is_a_race();
    test_what_is_not_ordered();
    test_bytes();
    test_graphs();
    test_the_program_writes_too();
    test_the_clock();
    configure("SEED=0");
    contract_close();
    return done_testing();
}
