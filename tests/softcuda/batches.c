/* What the software device says of several copies in one call: who is unordered
 * with whom, which copy is wrong, and what takes turns. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <string.h>

struct attributes {
    int order, hints[4];
    unsigned int flags;
};

static CUresult (*batch_call)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                              struct attributes *, size_t *, size_t, size_t *,
                              CUstream);

enum {
    N = 20
};

static CUdeviceptr dsts[N], srcs[N];
static size_t sizes[N], fail;

static CUdeviceptr host_word(uint32_t i)
{
    return (CUdeviceptr)(uintptr_t)(pinned + i);
}

static void prepare(void)
{
    for (uint32_t i = 0; i < N; i++) {
        srcs[i] = word(i);
        dsts[i] = host_word(i);
        sizes[i] = WORD;
    }
}

static CUresult batch(size_t n, CUstream stream)
{
    struct attributes attributes = { .order = 1 };
    size_t index = 0;

    return batch_call(dsts, srcs, sizes, n, &attributes, &index, 1, &fail,
                      stream);
}

static void test_races(void)
{
    configure("RACES=1");
    prepare();
    batch(N, side);
    batch(N, side);
    drv.cuStreamSynchronize(side);
    is_int(races(), 0, "batches of a stream follow each other");
    dsts[1] = dsts[0];
    batch(2, side);
    is_int(races(), 1, "two copies of a batch to one place are a race");
    ok(races() == 1 && strstr(race(0), "copy DtoH") != NULL, "which is named");

    configure("RACES=1");
    prepare();
    batch(4, side);
    drv.cuMemsetD8Async(word(3), 1, WORD, other);
    is_int(races(), 1, "a batch is unordered with other streams");

    configure("RACES=1");
    prepare();
    drv.cuMemsetD8Async(word(3), 1, WORD, other);
    batch(4, side);
    is_int(races(), 1, "that come before it too");
}

static uint32_t seen_orders(void)
{
    uint32_t different = 0;

    for (int seed = 1; seed <= 40; seed++) {
        drv.cuCtxSynchronize();
        configure("SEED=%d RACES=0", seed);
        prepare();
        dsts[0] = dsts[1] = host_word(500);
        drv.cuMemsetD32Async(word(0), 1, 1, side);
        drv.cuMemsetD32Async(word(1), 2, 1, side);
        batch(2, side);
        drv.cuStreamSynchronize(side);
        different |= 1u << (pinned[500] - 1);
    }
    configure("SEED=0");
    return different;
}

static void test_failures(void)
{
    configure("SEED=0");
    prepare();
    srcs[2] = 0;
    is_int(batch(4, side), 1, "a copy from nowhere is refused");
    is_int((int)fail, 2, "and named");
    prepare();
    sizes[3] = 0;
    is_int(batch(4, side), 1, "so is one of no bytes");
    is_int((int)fail, 3, "and named too");
    prepare();
    is_int(batch(0, side), 1, "and a batch of none");
    ok(fail == SIZE_MAX, "in which no copy is wrong");
    configure("FAIL=cuMemcpyBatchAsync:2:9");
    is_int(batch(1, side), 0, "the first batch works");
    is_int(batch(1, side), 9, "the second fails on demand");
    is_int(soft.calls("cuMemcpyBatchAsync"), 2, "and both are counted");
}

static void test_pageable(void)
{
    uint32_t here[2] = { 11, 12 }, there[2] = { 0, 0 };

    configure("SEED=3");
    prepare();
    srcs[0] = (CUdeviceptr)(uintptr_t)&here[0];
    srcs[1] = (CUdeviceptr)(uintptr_t)&here[1];
    dsts[0] = word(0);
    dsts[1] = word(1);
    is_int(batch(2, side), 0, "a batch reads the program's own memory");
    here[0] = here[1] = 99;
    srcs[0] = word(0);
    srcs[1] = word(1);
    dsts[0] = (CUdeviceptr)(uintptr_t)&there[0];
    dsts[1] = (CUdeviceptr)(uintptr_t)&there[1];
    is_int(batch(2, side), 0, "and writes it");
    ok(there[0] == 11 && there[1] == 12,
       "with what was there at the call, before it returns");
    configure("SEED=0");
}

static void test_clock(void)
{
    static const char costs[] = "copy out 1000000\ncopy back 1000000\n"
                                "call cuMemcpyBatchAsync 0\n";

    drv.cuCtxSynchronize();
    configure("SEED=0");
    soft.costs(costs);
    prepare();
    batch(6, side);
    is_int(soft.clock() / 100000, 60, "copies one way take turns");
    configure("SEED=0");
    soft.costs(costs);
    for (uint32_t i = 0; i < 3; i++) {
        srcs[i] = host_word(600 + i);
        dsts[i] = word(600 + i);
    }
    batch(6, side);
    is_int(soft.clock() / 100000, 30, "copies both ways do not");
}

int main(void)
{
    void *symbol;
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    symbol = dlsym(drv.library, "cuMemcpyBatchAsync");
    memcpy(&batch_call, &symbol, sizeof(batch_call));
    test_races();
    is_int(seen_orders(), 3, "either copy of a batch may be the last");
    test_failures();
    test_pageable();
    test_clock();
    contract_close();
    return done_testing();
}
