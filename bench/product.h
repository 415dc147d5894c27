/*
 * product.h - square matrix products: cuBLAS's in bf16 where it is found, else
 * the engine's own kernels in float.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include "bench/bench.h"

#include "model/parts.h"

struct products {
    const struct bench *bench;
    const char *by; /* "cublas" or "engine" */
    int n;          /* rows and columns */
    size_t element, bytes; /* of an element, of a matrix */
    struct device *engine; /* for its kernels */
    struct blas *blas;     /* NULL: none */
};

/* `path`: a cuBLAS; "" for none, NULL for one that the loader finds. */
void products_open(struct products *p, const struct bench *bench,
                   const char *path);
void products_close(struct products *p);

/* C = A B, A B' or A' B, scaled so that numbers keep their size; or is added
 * to C. */
void product(const struct products *p, enum gemm_form form, const void *a,
             const void *b, void *c, bool add, CUstream stream);

/* Numbers between -1 and 1, the same for the same seed. */
void products_fill(const struct products *p, void *host, size_t bytes,
                   uint32_t seed);

#endif
