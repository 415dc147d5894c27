/*
 * kernels_cpu.c - kernels.cu as C, and the table that the software device
 * takes instead of PTX.
 *
 * A row's run() loops over the blocks of the grid; its touch() names the
 * ranges that kernels.def gives.  Both are made from that one table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
/* This is here and not in the flags, because the CFLAGS of whoever builds come
 * after ours, and gcc's -O2 does not vectorize the tiles.  clang's -O2 does. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

#include "kernels.cu" /* first: its blocks are what the rows run */

const struct engine_kernel_row engine_kernels[KERNEL_COUNT] = {
#define ENGINE_ARGS(args, fields, touches)
#define ENGINE_KERNEL(name, args, threads) { #name, threads },
#include "kernels.def"
#undef ENGINE_ARGS
#undef ENGINE_KERNEL
};

/* How many elements there are from the first to the last of a strided batch. */
static size_t span(int rows, int cols, int ld, int outer, int outer_stride,
                   int inner, int inner_stride)
{
    return (size_t)(outer - 1) * (size_t)outer_stride +
           (size_t)(inner - 1) * (size_t)inner_stride +
           (size_t)(rows - 1) * (size_t)ld + (size_t)cols;
}

#define COUNT(field) ((size_t)k->field)
#define SPAN(rows, cols, ld, outer_stride, inner_stride) \
    span(k->rows, k->cols, k->ld, k->outer, k->outer_stride, k->inner, \
         k->inner_stride)
#define TOUCH(field, count, write) \
    if (k->field != NULL) { \
        touch(sink, k->field, (size_t)(count) * sizeof(*k->field), write); \
    }
#define READ(field, count) TOUCH(field, count, 0)
#define WRITE(field, count) TOUCH(field, count, 1)

#define ENGINE_ARGS(args, fields, touches) \
    static const uint32_t args##_bytes[] = { sizeof(struct args) }; \
\
    static void args##_touch(const softcuda_launch *launch, \
                             void *const *params, softcuda_touch_fn touch, \
                             void *sink) \
    { \
        const struct args *k = params[0]; \
\
        (void)launch; \
        touches \
    }
#define ENGINE_KERNEL(name, args, threads) \
    static void name##_run(const softcuda_launch *launch, void *const *params) \
    { \
        const struct args *k = params[0]; \
\
        for (uint32_t z = 0; z < launch->grid[2]; z++) { \
            for (uint32_t y = 0; y < launch->grid[1]; y++) { \
                for (uint32_t x = 0; x < launch->grid[0]; x++) { \
                    const struct dialect_block block = { .x = (int)x, \
                                                         .y = (int)y, \
                                                         .z = (int)z }; \
\
                    name##_block(*k, block); \
                } \
            } \
        } \
    }
#include "kernels.def"
#undef ENGINE_ARGS
#undef ENGINE_KERNEL

static const softcuda_kernel rows[KERNEL_COUNT] = {
#define ENGINE_ARGS(args, fields, touches)
#define ENGINE_KERNEL(kernel, args, threads) \
    { .name = #kernel, \
      .n_params = 1, \
      .param_bytes = args##_bytes, \
      .run = kernel##_run, \
      .touch = args##_touch },
#include "kernels.def"
#undef ENGINE_ARGS
#undef ENGINE_KERNEL
};

const softcuda_image engine_soft_image = {
    .magic = SOFTCUDA_IMAGE_MAGIC,
    .n_kernels = KERNEL_COUNT,
    .kernels = rows,
};
