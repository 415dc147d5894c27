/*
 * gpu.c - see gpu.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "tests/unit/kernels/gpu.h"

#include "kernels/kernels.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu gpu;

static uint64_t seed = 1;

uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

void draw_bytes(unsigned char *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 4) {
        const uint32_t word = draw(UINT32_MAX);

        memcpy(bytes + i, &word, 4);
    }
}

bool gpu_works(CUresult result, const char *entry)
{
    const char *name = "?";

    if (result == CUDA_SUCCESS) {
        return true;
    }
    gpu.drv.cuGetErrorName(result, &name);
    return ok(false, "%s returned %s", entry, name);
}

static bool load_kernels(void)
{
    char *ptx = gh_kernels_ptx();
    const bool loaded =
        CALL(cuModuleLoadData,
             (&gpu.module, gpu.soft ? (const void *)&gh_kernels_soft : ptx));

    free(ptx);
    return loaded;
}

bool gpu_open(uint64_t arena_bytes, char *reason, size_t bytes)
{
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");
    const char *soft = getenv("GRAPHHOOKS_SOFTCUDA");
    const char *path = ".libs/libgraphhooks-softcuda.so";
    CUdevice device;
    int count = 0;

    if (driver != NULL && strcmp(driver, "cuda") == 0) {
        path = "libcuda.so.1";
    } else if (soft != NULL) {
        path = soft;
    }
    if (driver_load(path, &gpu.drv, reason, bytes) != 0) {
        return false;
    }
    gpu.soft = dlsym(gpu.drv.library, "softcuda_count") != NULL;
    snprintf(reason, bytes, "%s has no device that works", path);
    return gpu.drv.cuInit(0) == CUDA_SUCCESS &&
           gpu.drv.cuDeviceGetCount(&count) == CUDA_SUCCESS && count != 0 &&
           CALL(cuDeviceGet, (&device, 0)) &&
           CALL(cuDevicePrimaryCtxRetain, (&gpu.ctx, device)) &&
           CALL(cuCtxSetCurrent, (gpu.ctx)) && load_kernels() &&
           CALL(cuStreamCreate, (&gpu.stream, CU_STREAM_NON_BLOCKING)) &&
           CALL(cuMemAlloc, (&gpu.arena, arena_bytes));
}

bool gpu_function(CUfunction *function, const char *kernel)
{
    return CALL(cuModuleGetFunction, (function, gpu.module, kernel));
}

void gpu_close(void)
{
    CALL(cuMemFree, (gpu.arena));
    CALL(cuStreamDestroy, (gpu.stream));
    CALL(cuModuleUnload, (gpu.module));
    CALL(cuCtxSetCurrent, (NULL));
    CALL(cuDevicePrimaryCtxRelease, (0));
}
