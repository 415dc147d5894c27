/* Pinned memory that neither the program nor the device has written: a copy of
 * it to the device is reported, and what the program has written is not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct attributes {
    int order, hints[4];
    unsigned int flags;
};

static CUresult (*batch_call)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                              struct attributes *, size_t *, size_t, size_t *,
                              CUstream);
static CUmodule module;
static CUfunction copy, look, use;
static CUdeviceptr first,
    second; /* KERNEL_BYTES bytes each, new in every test, */
static char *host;                /* and so is this, which is pinned */

/* ---- kernels that read pinned memory ------------------------------------ */

static void use_touch(const softcuda_launch *launch, void *const *params,
                      softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, kernel_at(params[1]), KERNEL_BYTES, SOFTCUDA_READ);
}

static const softcuda_kernel kernels[] = {
    { "copy", 2, kernel_params, kernel_copy, kernel_copy_touch, NULL },
    { "look", 2, kernel_params, kernel_nothing, kernel_look_touch, NULL },
    { "use", 2, kernel_params, kernel_nothing, use_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, 3, 0, kernels };

/* ---- what every test begins and ends with ------------------------------ */

static void renew(void)
{
    void *address = NULL;

    drv.cuCtxSynchronize();
    drv.cuMemFree(first);
    drv.cuMemFree(second);
    drv.cuMemFreeHost(host);
    drv.cuMemAlloc(&first, KERNEL_BYTES);
    drv.cuMemAlloc(&second, KERNEL_BYTES);
    drv.cuMemAllocHost(&address, KERNEL_BYTES);
    host = address;
    configure("SEED=0");
}

/* What came before was reported, and nothing since. */
static void no_more(uint64_t before, const char *what)
{
    drv.cuCtxSynchronize();
    is_int(unwritten(), before, "%s is not reported", what);
}

static void to_device(unsigned from, unsigned bytes)
{
    drv.cuMemcpyHtoDAsync(first + from, host + from, bytes, side);
}

static CUdeviceptr host_at(unsigned offset)
{
    return (CUdeviceptr)(uintptr_t)(host + offset);
}

static void test_copies(void)
{
    renew();
    to_device(0, KERNEL_BYTES);
    reported(1, "a copy of new pinned memory to the device");
    ok(unwritten_says("copy HtoD on stream ") &&
           unwritten_says(" reads bytes 0..64 of pinned allocation ") &&
           unwritten_says(" (64 bytes), which nothing has written"),
       "the report names the copy, the bytes and the allocation: %s",
       unwritten_read(0));
    to_device(0, KERNEL_BYTES);
    no_more(1, "the same copy again");
    drv.cuMemcpyDtoHAsync(pinned, first, KERNEL_BYTES, side);
    no_more(1, "a read of what was copied");

    memset(host, 0, KERNEL_BYTES);
    to_device(8, 24);
    no_more(1, "what the host has written, zeros too,");
    renew();
    drv.cuMemcpyHtoD(first, host, KERNEL_BYTES);
    reported(1, "a copy that waits");
    renew();
    drv.cuMemcpyAsync(first, host_at(0), KERNEL_BYTES, side);
    reported(1, "a copy that finds out where its ends are");
    renew();
    drv.cuMemcpyHtoDAsync(host_at(0), pinned, KERNEL_BYTES / 2, side);
    drv.cuMemcpyAsync((CUdeviceptr)(uintptr_t)pinned, host_at(0), KERNEL_BYTES,
                      side);
    reported(1, "a copy within pinned memory");
    ok(unwritten_says(" bytes 32..64 of "), "where no copy has written: %s",
       unwritten_read(0));
}

static void test_a_batch(void)
{
    CUdeviceptr dsts[2], srcs[2];
    size_t sizes[] = { 32, 32 }, index = 0, fail;
    struct attributes attributes = { .order = 1 };

    renew();
    memset(host, 1, 48);
    for (unsigned i = 0; i < 2; i++) {
        dsts[i] = first + 32 * i;
        srcs[i] = host_at(32 * i);
    }
    batch_call(dsts, srcs, sizes, 2, &attributes, &index, 1, &fail, side);
    reported(1, "a copy of a batch");
    ok(unwritten_says(" bytes 48..64 of pinned "),
       "the one that is missing a part: %s", unwritten_read(0));
}

static void read_pinned(CUfunction function)
{
    CUdeviceptr source = host_at(0);
    void *params[] = { &second, &source };

    drv.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, side, params, NULL);
}

static void test_kernels(void)
{
    renew();
    read_pinned(look);
    reported(0, "a kernel that only looks at new pinned memory");
    read_pinned(use);
    reported(1, "a kernel that reads it");
    ok(unwritten_says("use on stream "), "the report names it: %s",
       unwritten_read(0));
    read_pinned(copy);
    reported(2, "a kernel that copies it to the device");
    memset(host, 0, KERNEL_BYTES);
    read_pinned(use);
    read_pinned(copy);
    no_more(2, "what the host has written");
}

static void test_what_writes(void)
{
    renew();
    drv.cuMemsetD8Async(first, 1, KERNEL_BYTES, side);
    drv.cuMemcpyDtoHAsync(host, first, 16, side);
    drv.cuMemcpyHtoDAsync(host_at(16), pinned, 16, side);
    drv.cuMemsetD8Async(host_at(32), 1, 16, side);
    memset(host + 48, 1, 16);
    to_device(0, KERNEL_BYTES);
    reported(0, "what copies, memsets and the host have written");

    /* What an operation writes is written, whatever it writes. */
    renew();
    memcpy(pinned, host, KERNEL_BYTES);
    drv.cuMemcpyHtoDAsync(host_at(0), pinned, KERNEL_BYTES, side);
    to_device(0, KERNEL_BYTES);
    reported(0, "what an operation has written, new memory's bytes too,");

    /* Bytes of another place, or of another allocation. */
    renew();
    memmove(host, host + 16, KERNEL_BYTES - 16);
    to_device(0, KERNEL_BYTES - 16);
    reported(0, "what the host has moved there from another place");
}

static void test_parts(void)
{
    renew();
    memset(host, 0, 16);
    memset(host + 32, 0, 32);
    to_device(0, KERNEL_BYTES);
    reported(1, "what is missing in the middle");
    ok(unwritten_says(" bytes 16..32 of "), "where it is: %s",
       unwritten_read(0));
    renew();
    memset(host, 0, 16);
    drv.cuMemsetD8Async(host_at(16), 1, 16, side);
    to_device(0, KERNEL_BYTES);
    reported(1, "what is missing behind what an operation has written");
    ok(unwritten_says(" bytes 32..64 of "), "where it is: %s",
       unwritten_read(0));

    renew();
    memset(host, 0, 8);
    memset(host + 16, 0, 9);
    memset(host + 41, 0, 3);
    to_device(0, KERNEL_BYTES);
    reported(1, "what the host has not written");
    ok(unwritten_says(" bytes 48..64 of "),
       "padding of 15 bytes is none, and a word with one byte written is "
       "written: %s",
       unwritten_read(0));

    renew();
    memset(host, 0, 24);
    host[39] = (char)~host[39];
    to_device(0, 40);
    reported(0, "padding of 15 bytes at the end");
    to_device(0, 48);
    reported(0, "a run of 8 bytes in 48");
    to_device(40, 8);
    reported(1, "8 bytes, when they are all that is copied,");
    to_device(49, 14);
    no_more(1, "a copy of 14 bytes that are parts of two words");
    ok(unwritten_says(" bytes 40..48 of "), "where they are: %s",
       unwritten_read(0));
}

/* Two allocations that live side by side, under each seed. */
static void test_what_it_begins_with(void)
{
    unsigned char before[KERNEL_BYTES + 3] = { 0 }, *a, *b;
    void *address;
    unsigned same = 0;

    for (unsigned seed = 0; seed < 4; seed++) {
        renew();
        configure("SEED=%u", seed);
        drv.cuMemAllocHost(&address, KERNEL_BYTES + 3);
        a = address;
        drv.cuMemAllocHost(&address, KERNEL_BYTES + 3);
        b = address;
        same += memcmp(a, b, 8) == 0 || memcmp(a, a + 8, 8) == 0 ||
                memcmp(a + KERNEL_BYTES, b + KERNEL_BYTES, 3) == 0 ||
                (seed != 0 && memcmp(a, before, 8) == 0);
        memcpy(before, a, KERNEL_BYTES + 3);
        drv.cuMemcpyHtoDAsync(first, a, KERNEL_BYTES, side);
        configure("SEED=%u", seed + 1);
        drv.cuMemcpyHtoDAsync(first, b, KERNEL_BYTES, side);
        reported(1, "new pinned memory of another seed");
        drv.cuMemFreeHost(a);
        drv.cuMemFreeHost(b);
    }
    is_int(same, 0, "no two allocations and no two words begin alike");
}

/* The first word of the process's next allocation, under a seed. */
static uint64_t first_word(unsigned seed)
{
    uint64_t word = 0;
    void *address;
    int ends[2], status;
    pid_t child;

    if (pipe(ends) != 0) {
        return 0;
    }
    child = fork();
    if (child == 0) {
        configure("SEED=%u", seed);
        drv.cuMemAllocHost(&address, KERNEL_BYTES);
        _exit(write(ends[1], address, sizeof(word)) != sizeof(word));
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &word, sizeof(word)) != sizeof(word)) {
        word = 0;
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    return word;
}

static void test_each_seed_has_its_own(void)
{
    uint64_t zero, one;

    renew();
    zero = first_word(0);
    one = first_word(1);
    ok(zero != 0 && one != 0 && zero != one,
       "each seed puts something else into the same memory");
    ok(first_word(1) == one, "and the same each time");
}

static void test_memory_that_comes_back(void)
{
    void *address = NULL;

    renew();
    memset(host, 0, KERNEL_BYTES);
    to_device(0, KERNEL_BYTES);
    drv.cuMemFreeHost(host);
    drv.cuMemAllocHost(&address, KERNEL_BYTES);
    host = address;
    to_device(0, KERNEL_BYTES);
    reported(1, "a copy of what was written before it was freed");
}

static void test_reports_begin_at_any_time(void)
{
    renew();
    configure("UNWRITTEN=0");
    to_device(0, KERNEL_BYTES);
    read_pinned(use);
    reported(0, "with reports off, new pinned memory");
    configure("UNWRITTEN=1");
    to_device(0, KERNEL_BYTES);
    reported(1, "what is still unwritten when they begin");
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
    drv.cuModuleLoadData(&module, &image);
    drv.cuModuleGetFunction(&copy, module, "copy");
    drv.cuModuleGetFunction(&look, module, "look");
    drv.cuModuleGetFunction(&use, module, "use");

    test_copies();
    test_a_batch();
    test_kernels();
    test_what_writes();
    test_parts();
    test_what_it_begins_with();
    test_each_seed_has_its_own();
    test_memory_that_comes_back();
    test_reports_begin_at_any_time();

    renew();
    drv.cuMemFree(first);
    drv.cuMemFree(second);
    drv.cuMemFreeHost(host);
    drv.cuModuleUnload(module);
    contract_close();
    return done_testing();
}
