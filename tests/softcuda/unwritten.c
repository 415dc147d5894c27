/* A read of memory that nothing has written is reported, a copy of it is
 * not, and what was written is never named. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUmodule module;
static CUfunction copy, look, scratch;
static CUdeviceptr first,
    second; /* KERNEL_BYTES bytes each, new in every test */

/* ---- kernels that say more than READ and WRITE -------------------------- */

static void scratch_touch(const softcuda_launch *launch, void *const *params,
                          softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, kernel_at(params[0]), KERNEL_BYTES, SOFTCUDA_WRITE);
    touch(sink, kernel_at(params[0]), KERNEL_BYTES, SOFTCUDA_READ);
}

static const softcuda_kernel kernels[] = {
    { "copy", 2, kernel_params, kernel_copy, kernel_copy_touch, NULL },
    { "look", 2, kernel_params, kernel_nothing, kernel_look_touch, NULL },
    { "scratch", 2, kernel_params, kernel_nothing, scratch_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, 3, 0, kernels };

static void launch(CUfunction function)
{
    void *params[] = { &second, &first };

    drv.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, side, params, NULL);
}

/* ---- what every test begins and ends with ------------------------------ */

static void renew(void)
{
    drv.cuCtxSynchronize();
    drv.cuMemFree(first);
    drv.cuMemFree(second);
    drv.cuMemAlloc(&first, KERNEL_BYTES);
    drv.cuMemAlloc(&second, KERNEL_BYTES);
    configure("SEED=0");
}

/* ---- the tests --------------------------------------------------------- */

static void test_a_kernel_reads(void)
{
    renew();
    launch_add(side, word(0), first + 4);
    reported(1, "a kernel's read of new memory");
    ok(unwritten_says("add on stream ") &&
           unwritten_says(" reads bytes 4..8 of device allocation ") &&
           unwritten_says(" (64 bytes), which nothing has written"),
       "the report names the kernel, its stream, the bytes and the "
       "allocation: %s",
       unwritten_read(0));
    ok(unwritten_read(1) == NULL, "there is no text past the last report");
    launch_add(side, word(0), first + 4);
    reported(1, "the same read again, once,");
    launch_add(side, word(0), first + 8);
    reported(2, "a read of another place as well");
    launch_add(side, word(0), word(1));
    launch_add(side, word(0), (CUdeviceptr)(uintptr_t)pinned);
    reported(2, "no read of what was written, or of pinned memory,");
}

static void test_a_graph_reads(void)
{
    CUgraph graph;
    CUgraphExec exec;

    renew();
    begin(side);
    launch_add(side, word(0), first);
    graph = end_graph(side);
    exec = instantiate(graph);
    reported(0, "a capture, which runs nothing,");
    drv.cuGraphLaunch(exec, side);
    reported(1, "a node's read of new memory");
    ok(unwritten_says(" in graph ") && unwritten_says(", node 0 reads"),
       "the report names it");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
}

static void test_what_writes(void)
{
    char pageable[KERNEL_BYTES] = { 0 };

    renew();
    drv.cuMemsetD8Async(first, 1, 16, side);
    drv.cuMemcpyHtoDAsync(first + 16, pageable, 16, side);
    drv.cuMemcpyHtoDAsync(first + 32, pinned, 16, side);
    drv.cuMemcpyDtoDAsync(first + 48, words, 12, side);
    launch_store(side, first + 60, 1);
    drv.cuMemcpyDtoHAsync(pinned, first, KERNEL_BYTES, side);
    reported(0, "what memsets, copies and kernels have written");

    renew();
    launch(scratch);
    reported(0, "what the reading kernel itself has written before");
}

static void test_the_part_that_is_missing(void)
{
    renew();
    drv.cuMemsetD8Async(first, 1, 20, side);
    drv.cuMemsetD8Async(first + 24, 1, 40, side);
    drv.cuMemcpyDtoHAsync(pinned, first + 8, 32, side);
    reported(1, "a copy to the host of a buffer that is written in part");
    ok(unwritten_says("copy DtoH") && unwritten_says(" bytes 20..24 of "),
       "only what is missing is named: %s", unwritten_read(0));
    launch_store(side, first + 20, 1);
    drv.cuMemcpyDtoHAsync(pinned, first, KERNEL_BYTES, side);
    reported(1, "nothing more, once it has been written,");
}

static void test_copies(void)
{
    renew();
    drv.cuMemsetD8Async(first, 1, 16, side);
    drv.cuMemcpyDtoDAsync(second, first, KERNEL_BYTES, side);
    drv.cuMemcpyDtoHAsync(pinned, second, 16, side);
    reported(0, "a copy of memory that is written in part");
    launch_add(side, word(0), second + 16);
    reported(1, "a read of what such a copy has left unwritten");
    ok(unwritten_says(" bytes 16..20 of "), "where it was read: %s",
       unwritten_read(0));

    renew();
    drv.cuMemsetD8Async(second, 1, KERNEL_BYTES, side);
    launch(copy);
    reported(0, "a kernel that declares a copy");
    launch_add(side, word(0), second);
    reported(1, "a read of what it has copied over what was written");

    renew();
    drv.cuMemsetD8Async(first, 1, KERNEL_BYTES, side);
    launch(copy);
    drv.cuMemcpyDtoHAsync(pinned, second, KERNEL_BYTES, side);
    reported(0, "a read of what it has copied from what was written");

    renew();
    launch(look);
    reported(0, "a kernel that only looks");
}

static void test_overlapping_copies(void)
{
    renew();
    drv.cuMemsetD8Async(first, 1, 32, side);
    drv.cuMemcpyDtoDAsync(first + 16, first, 32, side);
    drv.cuMemcpyDtoHAsync(pinned, first, 48, side);
    reported(0, "what was moved up within its allocation");
    drv.cuMemcpyDtoDAsync(first + 32, first + 40, 24, side);
    drv.cuMemcpyDtoHAsync(pinned, first, KERNEL_BYTES, side);
    reported(1, "what was moved down within its allocation");
    ok(unwritten_says(" bytes 40..64 of "), "the rest comes along: %s",
       unwritten_read(0));
}

static int discard(CUdeviceptr at, size_t bytes, CUstream stream)
{
    return soft.discard((void *)(uintptr_t)at, bytes, stream, NULL);
}

static void test_what_is_discarded(void)
{
    CUgraphExec exec;
    CUgraph graph;
    CUevent event;
    uint8_t found = 7;

    renew();
    drv.cuMemsetD8Async(first, 7, KERNEL_BYTES, side);
    is_int(discard(first + 8, 16, side), CUDA_SUCCESS, "memory is discarded");
    launch_add(side, word(0), first + 4);
    launch_add(side, word(0), first + 24);
    reported(0, "what lies around it");
    launch_add(side, word(0), first + 20);
    reported(1, "a read of it");
    ok(unwritten_says(" reads bytes 20..24 of ") &&
           unwritten_says(", which nothing has written since it was discarded"),
       "with what became of it: %s", unwritten_read(0));
    drv.cuMemcpyDtoH(&found, first + 8, 1);
    ok(found != 7, "and it holds something else");
    drv.cuMemsetD8Async(first + 8, 7, 16, side);
    configure("SEED=0");
    launch_add(side, word(0), first + 8);
    reported(0, "a read of what was written again");
    launch_add(side, word(0), first);
    discard(first, KERNEL_BYTES, other);
    drv.cuCtxSynchronize();
    is_int(races(), 1, "a discard that does not follow a read is a race");
    ok(strstr(race(0), "discard on stream ") != NULL, "which names it: %s",
       race(0));

    renew();
    drv.cuEventCreate(&event, 0);
    drv.cuEventRecord(event, side);
    is_int(soft.discard((void *)(uintptr_t)first, KERNEL_BYTES, side, event),
           CUDA_SUCCESS, "an event comes after a discard");
    drv.cuStreamWaitEvent(other, event, 0);
    drv.cuMemsetD8Async(first, 7, KERNEL_BYTES, other);
    drv.cuCtxSynchronize();
    is_int(races(), 0, "and who waits for it may write again");
    drv.cuEventDestroy(event);

    renew();
    begin(side);
    discard(first, 4, side);
    graph = end_graph(side);
    drv.cuMemsetD8Async(first, 7, KERNEL_BYTES, side);
    launch_add(side, word(0), first);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphLaunch(exec, side);
    launch_add(side, word(0), first + 4);
    reported(0, "a read before the launch of a graph that discards");
    launch_add(side, word(0), first);
    reported(1, "a read after it");
    drv.cuGraphExecDestroy(exec);
    drv.cuGraphDestroy(graph);
    is_int(discard(first, KERNEL_BYTES + 1, side), CUDA_ERROR_INVALID_VALUE,
           "what is no memory cannot be discarded");
}

static void test_memory_that_comes_back(void)
{
    renew();
    drv.cuMemsetD8Async(first, 1, KERNEL_BYTES, side);
    drv.cuMemFree(first);
    drv.cuMemAlloc(&first, KERNEL_BYTES);
    launch_add(side, word(0), first);
    reported(1, "a read of memory that was written before it was freed");
}

static void test_reports_begin_at_any_time(void)
{
    renew();
    configure("UNWRITTEN=0");
    drv.cuMemsetD8Async(first, 1, KERNEL_BYTES, side);
    launch_add(side, word(0), second);
    reported(0, "with reports off, a read of new memory");
    configure("UNWRITTEN=1");
    launch_add(side, word(0), first);
    reported(0, "what was written while reports were off");
    launch_add(side, word(0), second);
    reported(1, "what is still unwritten when they begin");
}

/* ---- many operations, against a byte for each byte ---------------------- */

static unsigned char missing[2][KERNEL_BYTES];

static CUdeviceptr place(unsigned which, unsigned offset)
{
    return (which == 0 ? first : second) + offset;
}

static void any_operation(void)
{
    unsigned from = (unsigned)rand() % 2, to = (unsigned)rand() % 2;
    unsigned bytes = 1 + (unsigned)rand() % 12;
    unsigned a = (unsigned)rand() % (KERNEL_BYTES - bytes + 1);
    unsigned b = (unsigned)rand() % (KERNEL_BYTES - bytes + 1);

    if (rand() % 4 == 0) {
        drv.cuMemsetD8Async(place(to, a), 1, bytes, side);
        memset(&missing[to][a], 0, bytes);
    } else {
        drv.cuMemcpyDtoDAsync(place(to, a), place(from, b), bytes, side);
        memmove(&missing[to][a], &missing[from][b], bytes);
    }
}

/* Reads all of it: the report must name the first run of missing bytes. */
static bool agrees(unsigned which)
{
    unsigned start = 0, end;
    char text[64];

    configure("SEED=0");
    drv.cuMemcpyDtoHAsync(pinned, place(which, 0), KERNEL_BYTES, side);
    drv.cuCtxSynchronize();
    while (start < KERNEL_BYTES && !missing[which][start]) {
        start++;
    }
    for (end = start; end < KERNEL_BYTES && missing[which][end]; end++) {
    }
    snprintf(text, sizeof(text), " reads bytes %u..%u of ", start, end);
    return start == KERNEL_BYTES ? unwritten() == 0
                                 : unwritten() == 1 && unwritten_says(text);
}

static void test_against_a_map_of_bytes(void)
{
    unsigned wrong = 0;

    srand(23);
    for (unsigned i = 0; i < 20; i++) {
        renew();
        memset(missing, 1, sizeof(missing));
        for (unsigned n = 0; n < 100; n++) {
            any_operation();
            wrong += !agrees(0) || !agrees(1);
        }
    }
    is_int(wrong, 0,
           "after each of 2000 operations the first missing bytes are named");
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    drv.cuModuleLoadData(&module, &image);
    drv.cuModuleGetFunction(&copy, module, "copy");
    drv.cuModuleGetFunction(&look, module, "look");
    drv.cuModuleGetFunction(&scratch, module, "scratch");

    test_a_kernel_reads();
    test_a_graph_reads();
    test_what_writes();
    test_the_part_that_is_missing();
    test_copies();
    test_overlapping_copies();
    test_what_is_discarded();
    test_memory_that_comes_back();
    test_reports_begin_at_any_time();
    test_against_a_map_of_bytes();

    renew();
    drv.cuMemFree(first);
    drv.cuMemFree(second);
    drv.cuModuleUnload(module);
    contract_close();
    return done_testing();
}
