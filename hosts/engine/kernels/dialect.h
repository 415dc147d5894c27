/*
 * dialect.h - the words in which kernels.cu is written.
 *
 * One source is compiled twice: by nvcc for the GPU, and by the C compiler
 * for the software device.  A kernel is a block's work, cut into phases:
 *
 *     KERNEL(name, args)              k is the argument struct
 *     {
 *         SHARED(float, tile, [64]);
 *         REGISTERS(float, sum, 4, THREADS);
 *
 *         PHASE(THREADS) { ... MINE(sum)[0] ... thread ... }
 *         BARRIER();
 *         TOGETHER(i, 64, THREADS) { ... tile[i] ... }
 *     }
 *
 * On the GPU a phase is what every thread does between two barriers.  On the
 * CPU it is a loop over the threads, so a barrier is the end of that loop,
 * and what a thread keeps from one phase to the next must be declared with
 * REGISTERS.  Both orders of summation are the same, and both are fixed.
 *
 * On the GPU threads without a result run beside the others and cost nothing.
 * On the CPU they cost as much as the others: SPARE(condition) ends a turn of
 * a phase there, and AT_MOST(bound, limit) ends a loop at the smaller of two,
 * which is always its bound on the GPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_DIALECT_H
#define ENGINE_DIALECT_H

#ifdef __CUDACC__

#define KERNEL_AS(name, args) \
    extern "C" __global__ void __launch_bounds__(name##_threads) \
        name(const struct args k)

#define BLOCK_X ((int)blockIdx.x)
#define BLOCK_Y ((int)blockIdx.y)
#define BLOCK_Z ((int)blockIdx.z)

#define SHARED(type, name, extent) __shared__ __align__(16) type name extent
#define REGISTERS(type, name, count, threads) type name[count]
#define MINE(name) name

#define PHASE(threads) \
    for (int thread = (int)threadIdx.x, once = thread + 1; once != 0; once = 0)
/* The block's threads share the iterations, whose order must not matter. */
#define TOGETHER(i, count, threads) \
    for (int i = (int)threadIdx.x; i < (count); i += (threads))
#define BARRIER() __syncthreads()
#define SPARE(idle) ((void)0)
#define AT_MOST(bound, limit) (bound)

#else

#include <math.h>
#include <stddef.h>

struct dialect_block {
    int x, y, z;
};

#define KERNEL_AS(name, args) \
    static void name##_block(const struct args k, \
                             __attribute__((unused)) \
                             const struct dialect_block block)

#define BLOCK_X (block.x)
#define BLOCK_Y (block.y)
#define BLOCK_Z (block.z)

#define SHARED(type, name, extent) __attribute__((aligned(64))) type name extent
#define REGISTERS(type, name, count, threads) type name[threads][count]
#define MINE(name) name[thread]

#define PHASE(threads) for (int thread = 0; thread < (threads); thread++)
#define TOGETHER(i, count, threads) for (int i = 0; i < (count); i++)
#define BARRIER() ((void)0)
#define SPARE(idle) \
    if (idle) \
    continue
#define AT_MOST(bound, limit) ((bound) < (limit) ? (bound) : (limit))

#endif

/* Goes through a macro, so that the name may be a macro too (gemm.h). */
#define KERNEL(name, args) KERNEL_AS(name, args)

/* The 32 threads of a lane group reduce a row, and a block has four rows.
 * ROW_TREE folds array[] so that array[ROW_FIRST(thread)] holds the result. */
#define ROW_LANES 32
#define ROW_THREADS 128
#define ROWS_A_BLOCK (ROW_THREADS / ROW_LANES)
#define ROW_OF(thread) (BLOCK_X * ROWS_A_BLOCK + (thread) / ROW_LANES)
#define ROW_LANE(thread) ((thread) % ROW_LANES)
#define ROW_FIRST(thread) ((thread) - (thread) % ROW_LANES)

#define ROW_TREE(array, FOLD) \
    for (int half = ROW_LANES / 2; half > 0; half /= 2) { \
        BARRIER(); \
        PHASE(ROW_THREADS) \
        { \
            if (ROW_LANE(thread) < half) { \
                array[thread] = FOLD(array[thread], array[thread + half]); \
            } \
        } \
    } \
    BARRIER()

#define FOLD_SUM(a, b) ((a) + (b))
#define FOLD_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
