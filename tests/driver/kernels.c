/* Modules give functions, and launches take their arguments when called. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/driver/contract.h"

static CUresult shaped(unsigned int grid, unsigned int block,
                       unsigned int shared)
{
    return drv.cuLaunchKernel(contract_kernel("nop"), grid, 1, 1, block, 1, 1,
                              shared, side, NULL, NULL);
}

static void test_modules(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;

    is_int(drv.cuModuleLoadData(&module, "garbage"), 200,
           "garbage is no image");
    is_int(drv.cuModuleLoadData(&module, contract_image()), 0,
           "an image loads twice");
    is_int(drv.cuModuleGetFunction(&function, module, "absent"), 500,
           "a function that is not there is 500");
    ok(function == NULL, "no function is written then");
    is_int(drv.cuModuleGetFunction(&function, module, "nop"), 0,
           "a function that is there is found");
    is_int(drv.cuModuleUnload(module), 0, "a module unloads");
}

static void test_shapes(void)
{
    static const struct {
        unsigned int grid[3], block[3];
        int status;
        const char *name;
    } cases[] = {
        { { 0x80000000u, 1, 1 }, { 1, 1, 1 }, 1, "2147483648 blocks in x" },
        { { 1, 65536, 1 }, { 1, 1, 1 }, 1, "65536 blocks in y" },
        { { 1, 1, 65536 }, { 1, 1, 1 }, 1, "65536 blocks in z" },
        { { 1, 65535, 1 }, { 1, 1, 1 }, 0, "65535 blocks in y" },
        { { 1, 1, 1 }, { 1, 1, 65 }, 1, "65 threads in z" },
        { { 1, 1, 1 }, { 1, 1, 64 }, 0, "64 threads in z" },
        { { 1, 1, 1 }, { 32, 33, 1 }, 1, "1056 threads in x and y" },
        { { 1, 1, 1 }, { 32, 32, 1 }, 0, "1024 threads in x and y" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const unsigned int *g = cases[i].grid, *b = cases[i].block;

        is_int(drv.cuLaunchKernel(contract_kernel("nop"), g[0], g[1], g[2],
                                  b[0], b[1], b[2], 0, side, NULL, NULL),
               cases[i].status, "%s: %d", cases[i].name, cases[i].status);
    }
    is_int(shaped(1, 1, 1u << 20), 1, "1 MiB of shared memory is 1");
    is_int(shaped(0, 32, 0), 1, "an empty grid is 1");
    is_int(shaped(1, 0, 0), 1, "an empty block is 1");
    is_int(shaped(1, 4096, 0), 1, "a block of 4096 threads is 1");
    is_int(shaped(1, 1024, 0), 0, "a block of 1024 threads is fine");
    is_int(drv.cuStreamSynchronize(side), 0, "a bad launch breaks nothing");
}

static void test_arguments_are_copied(void)
{
    CUdeviceptr to = word(0);
    uint32_t value = 11;
    void *params[] = { &to, &value };

    is_int(drv.cuLaunchKernel(contract_kernel("store"), 1, 1, 1, 1, 1, 1, 0,
                              side, params, NULL),
           0, "a kernel with arguments is launched");
    to = word(1);
    value = 22;
    params[0] = params[1] = NULL;
    drv.cuStreamSynchronize(side);
    is_int(word_at(word(0)), 11, "arguments are those of the call");
}

static void test_kernels_run_in_order(void)
{
    drv.cuMemsetD32Async(word(2), 1, 1, side);
    for (int i = 0; i < 10; i++) {
        launch_add(side, word(2), word(2));
    }
    is_int(word_at(word(2)), 1024, "ten kernels of a stream run in order");
}

static void test_without_context(void)
{
    drv.cuCtxSetCurrent(NULL);
    is_int(shaped(1, 1, 0), 0, "a stream brings the context of a launch");
    drv.cuCtxSetCurrent(ctx);
}

int main(void)
{
    int status;

    if (!contract_open(&status)) {
        return status;
    }
    test_modules();
    test_shapes();
    test_arguments_are_copied();
    test_kernels_run_in_order();
    test_without_context();
    contract_close();
    return done_testing();
}
