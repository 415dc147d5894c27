/*
 * kernels.h - what the host knows of the kernels: argument structs, names,
 * block sizes, and the two compiled forms.
 *
 * Every kernel takes one struct by value, so a launch is a struct and a grid.
 * A row of kernels.def has everything else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_KERNELS_H
#define ENGINE_KERNELS_H

#include "dialect.h"

#ifndef __CUDACC__
#include "softcuda/softcuda.h"
#endif

/* How far a causal matrix product has to go.  Either tiles of the result above
 * the diagonal are not written, or the sum stops at the result's row, or it
 * begins there. */
enum gemm_causal {
    GEMM_FULL = 0,
    GEMM_CAUSAL_RESULT = 1,
    GEMM_CAUSAL_TO_ROW = 2,
    GEMM_CAUSAL_FROM_ROW = 3
};

/* Columns are summed by blocks of 32 columns and 16 rows of threads. */
#define COLUMN_LANES 32
#define COLUMN_ROWS 16
#define COLUMN_THREADS (COLUMN_LANES * COLUMN_ROWS)

/* The optimizer's state on the device, which it carries from step to step. */
struct optimizer_state {
    int step;
    float lr;
    float power1, power2; /* beta1 and beta2 to the power of step */
};

#define ENGINE_ARGS(args, fields, touches) \
    struct args { \
        fields \
    };
#define ENGINE_KERNEL(name, args, threads) \
    enum { \
        name##_threads = threads \
    };
#include "kernels.def"
#undef ENGINE_ARGS
#undef ENGINE_KERNEL

#ifndef __CUDACC__

enum engine_kernel {
#define ENGINE_ARGS(args, fields, touches)
#define ENGINE_KERNEL(name, args, threads) KERNEL_##name,
#include "kernels.def"
#undef ENGINE_ARGS
#undef ENGINE_KERNEL
    KERNEL_COUNT
};

struct engine_kernel_row {
    const char *name;
    unsigned threads;
};

extern const struct engine_kernel_row engine_kernels[KERNEL_COUNT];
extern const softcuda_image engine_soft_image;
extern const char engine_ptx[];

#endif

#endif
