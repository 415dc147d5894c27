/*
 * gemm.c - picks the kernel for a matrix product.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/parts.h"

struct tile {
    int side;
    enum engine_kernel kernels[3]; /* by form */
};

/* Ordered from the largest to the smallest. */
static const struct tile tiles[] = {
    { 128, { KERNEL_gemm_nn_128, KERNEL_gemm_nt_128, KERNEL_gemm_tn_128 } },
    { 64, { KERNEL_gemm_nn_64, KERNEL_gemm_nt_64, KERNEL_gemm_tn_64 } },
    { 32, { KERNEL_gemm_nn_32, KERNEL_gemm_nt_32, KERNEL_gemm_tn_32 } },
};

/* Chooses the largest tile that still gives every multiprocessor one.  A CPU
 * has few registers, so there 128 is too large.  Tiles never change a
 * result. */
static const struct tile *choose(const struct device *dev,
                                 const struct gemm_args *args)
{
    const struct tile *last = &tiles[2];

    for (const struct tile *tile = tiles; tile < last; tile++) {
        const size_t side = (size_t)tile->side;
        const size_t blocks = blocks_of((size_t)args->m, side) *
                              blocks_of((size_t)args->n, side) *
                              (size_t)(args->outer * args->inner);

        if (dev->soft && side > 64) {
            continue;
        }
        if (args->m > tile->side / 2 && args->n > tile->side / 2 &&
            blocks >= (size_t)dev->multiprocessors) {
            return tile;
        }
    }
    return last;
}

void gemm(const struct queue *queue, enum gemm_form form, struct gemm_args args)
{
    const struct tile *tile;
    size_t side;

    args.a_rows = form == GEMM_TN ? args.k : args.m;
    args.a_cols = form == GEMM_TN ? args.m : args.k;
    args.b_rows = form == GEMM_NT ? args.n : args.k;
    args.b_cols = form == GEMM_NT ? args.k : args.n;
    if (args.outer == 0) {
        args.outer = 1;
        args.inner = 1;
    }
    if (args.alpha == 0.0f) {
        args.alpha = 1.0f;
    }

    tile = choose(queue->dev, &args);
    side = (size_t)tile->side;
    device_launch(queue, tile->kernels[form], blocks_of((size_t)args.n, side),
                  blocks_of((size_t)args.m, side),
                  (size_t)(args.outer * args.inner), &args);
}
