/*
 * gpu.h - where the tests of kernels launch: an arena on the driver that
 * GRAPHHOOKS_TEST_DRIVER names, the software device unless that says cuda.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_UNIT_KERNELS_GPU_H
#define TESTS_UNIT_KERNELS_GPU_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu {
    struct driver drv;
    bool soft; /* the software device, which reports races */
    CUcontext ctx;
    CUmodule module;
    CUstream stream;
    CUdeviceptr arena;
};
extern struct gpu gpu;

/* Loads the driver and the library's kernels, and makes the arena.  False, with
 * the reason, where there is no device. */
bool gpu_open(uint64_t arena_bytes, char *reason, size_t bytes);
bool gpu_function(CUfunction *function, const char *kernel);
void gpu_close(void);

/* A point that fails, naming the entry, unless the call has worked. */
bool gpu_works(CUresult result, const char *entry);
#define CALL(entry, args) gpu_works(gpu.drv.entry args, #entry)

/* Random numbers, the same in each run. */
uint32_t draw(uint32_t below);
void draw_bytes(unsigned char *bytes, uint64_t n); /* n: a multiple of 4 */

#endif
