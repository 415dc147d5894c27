/* Several copies in one call: whole in the stream's order, in either signature,
 * and never part of a graph. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

#include <dlfcn.h>
#include <string.h>

struct attributes {
    int order, source[2], target[2];
    unsigned int flags;
};

typedef CUresult (*lookup)(const char *, void **, int, uint64_t, int *);
typedef CUresult (*batch_with)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                               struct attributes *, size_t *, size_t, size_t *,
                               CUstream);
typedef CUresult (*batch_without)(CUdeviceptr *, CUdeviceptr *, size_t *,
                                  size_t, struct attributes *, size_t *,
                                  size_t, CUstream);

static batch_with with;
static batch_without without;

enum {
    MOST = 40
};

/* One word from each source to each target. */
static struct {
    CUdeviceptr dsts[MOST], srcs[MOST];
    size_t sizes[MOST], indexes[2], fail;
    struct attributes attributes[2];
    size_t n_attributes;
} b;

static void find(void)
{
    void *symbol = dlsym(drv.library, "cuGetProcAddress_v2"), *entry = NULL;
    lookup look;

    if (symbol == NULL) {
        return;
    }
    memcpy(&look, &symbol, sizeof(look));
    if (look("cuMemcpyBatchAsync", &entry, 12080, 0, NULL) == CUDA_SUCCESS) {
        memcpy(&with, &entry, sizeof(with));
    }
    entry = NULL;
    if (look("cuMemcpyBatchAsync", &entry, 13000, 0, NULL) == CUDA_SUCCESS) {
        memcpy(&without, &entry, sizeof(without));
    }
}

static CUdeviceptr host_word(uint32_t i)
{
    return (CUdeviceptr)(uintptr_t)(pinned + i);
}

/* Words 100 and on of the device go to words 0 and on of the host. */
static void prepare(void)
{
    memset(&b, 0, sizeof(b));
    for (uint32_t i = 0; i < MOST; i++) {
        b.srcs[i] = word(100 + i);
        b.dsts[i] = host_word(i);
        b.sizes[i] = WORD;
        pinned[i] = 7;
    }
    b.attributes[0].order = b.attributes[1].order = 1;
    b.n_attributes = 1;
    b.fail = 77;
}

static CUresult batch(size_t n, CUstream stream)
{
    return with(b.dsts, b.srcs, b.sizes, n, b.attributes, b.indexes,
                b.n_attributes, &b.fail, stream);
}

static bool arrived(size_t n, uint32_t value)
{
    bool all = true;

    for (size_t i = 0; i < n; i++) {
        all = all && pinned[i] == value;
    }
    return all;
}

static void test_order(void)
{
    prepare();
    drv.cuMemsetD32Async(word(100), 1, MOST, side);
    is_int(batch(MOST, side), 0, "40 copies are one call");
    drv.cuMemsetD32Async(word(100), 2, MOST, side);
    is_int(drv.cuStreamSynchronize(side), 0, "and end with the stream");
    ok(arrived(MOST, 1),
       "all of them come after what was before in the stream, and before what "
       "comes after");
    for (uint32_t i = 0; i < MOST; i++) {
        b.dsts[i] = word(200 + i);
        b.srcs[i] = i % 2 == 0 ? host_word(i) : word(100 + i);
    }
    is_int(batch(MOST, side), 0, "a batch may have both directions in it");
    launch_add(side, word(300), word(200));
    launch_add(side, word(301), word(201));
    drv.cuStreamSynchronize(side);
    ok(word_at(word(200)) == 1 && word_at(word(201)) == 2,
       "each copy has its own source");
    ok(word_at(word(300)) == 1 && word_at(word(301)) == 2,
       "and a kernel behind the batch comes after it");
}

static void test_without_an_index(void)
{
    if (without == NULL) {
        skip(2, "the driver is older than CUDA 13.0");
        return;
    }
    prepare();
    drv.cuMemsetD32Async(word(100), 5, MOST, side);
    is_int(without(b.dsts, b.srcs, b.sizes, 3, b.attributes, b.indexes, 1,
                   side),
           0, "the signature of CUDA 13.0 copies");
    drv.cuStreamSynchronize(side);
    ok(arrived(3, 5) && pinned[3] == 7, "as many as were asked for");
}

static void test_bad_arguments(void)
{
    prepare();
    b.indexes[0] = 1;
    is_int(batch(4, side), 1, "the first attributes are for the first copy");
    prepare();
    b.n_attributes = 2;
    is_int(batch(4, side), 1, "their indexes rise");
    prepare();
    b.n_attributes = 2;
    b.indexes[1] = 1;
    is_int(batch(1, side), 1, "and are not more than the copies");
    prepare();
    b.attributes[0].order = 0;
    is_int(batch(4, side), 1, "each copy says how its source is read");
    prepare();
    b.attributes[0].order = 9;
    is_int(batch(4, side), 1, "in a way that there is");
    prepare();
    b.n_attributes = 2;
    b.indexes[1] = 2;
    b.attributes[1].flags = 1;
    is_int(batch(4, side), 0, "two sets of attributes are fine");
    drv.cuStreamSynchronize(side);
    prepare();
    ok(batch(4, NULL) != 0, "the legacy stream is refused");
    ok(batch(4, CU_STREAM_LEGACY) != 0, "by either of its names");
    drv.cuCtxSynchronize();
    ok(arrived(MOST, 7), "and nothing is copied");
    is_int(batch(4, CU_STREAM_PER_THREAD), 0, "each thread's own is not");
    drv.cuCtxSynchronize();
}

/* The copies are silently absent for whoever does not look at the code. */
static void test_capture(void)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    size_t nodes = 0;

    prepare();
    drv.cuMemsetD32Async(word(100), 3, MOST, side);
    drv.cuStreamSynchronize(side);
    is_int(begin(side), 0, "a capture begins");
    launch_store(side, word(400), 1);
    is_int(batch(4, side), 900, "a batch in it is 900");
    is_int(capture_status(side), 1, "and the capture goes on");
    launch_store(side, word(401), 1);
    is_int(drv.cuStreamEndCapture(side, &graph), 0, "to its end");
    drv.cuGraphGetNodes(graph, NULL, &nodes);
    is_int(nodes, 2, "with a graph that has all but the copies");
    exec = instantiate(graph);
    drv.cuGraphLaunch(exec, side);
    drv.cuStreamSynchronize(side);
    ok(word_at(word(401)) == 1 && arrived(MOST, 7),
       "whose launch runs, and copies nothing");
    is_int(begin(other), 0, "while another stream is captured");
    is_int(batch(4, side), 0, "a batch is fine");
    end_is(other, 0, "a batch elsewhere");
    drv.cuStreamSynchronize(side);
    ok(arrived(4, 3), "and copies");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    find();
    if (with == NULL) {
        contract_close();
        return skip_all("the driver is older than CUDA 12.8");
    }
    test_order();
    test_without_an_index();
    test_bad_arguments();
    test_capture();
    contract_close();
    return done_testing();
}
