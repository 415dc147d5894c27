/*
 * module.c - modules of C kernels, and launching them.
 *
 * Kernels are copied when their module is loaded.  One copy of each is kept
 * for the life of the process, because graphs and race reports refer to it
 * after the module is gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/module.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/handle.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PARAMS = 256,
    MAX_PARAM_BYTES = 4096,
    PARAM_ALIGN = 16
};
enum {
    MAX_THREADS = 1024,
    MAX_BLOCK_Z = 64,
    MAX_GRID_YZ = 65535
};
enum {
    MAX_SHARED = 232448
};

static struct kernel *kernels;

static bool same(const softcuda_kernel *a, const softcuda_kernel *b)
{
    return a->run == b->run && a->touch == b->touch &&
           a->cost_ns == b->cost_ns && a->n_params == b->n_params &&
           strcmp(a->name, b->name) == 0 &&
           (a->n_params == 0 ||
            memcmp(a->param_bytes, b->param_bytes,
                   a->n_params * sizeof(a->param_bytes[0])) == 0);
}

static void lay_out(struct kernel *kernel)
{
    size_t at = kernel->fn.n_params * sizeof(void *);

    for (uint32_t i = 0; i < kernel->fn.n_params; i++) {
        at = (at + PARAM_ALIGN - 1) & ~(size_t)(PARAM_ALIGN - 1);
        kernel->offsets[i] = (uint32_t)at;
        at += kernel->fn.param_bytes[i];
    }
    kernel->blob_bytes = at;
}

/* The one copy of a kernel. */
static const struct kernel *intern(const softcuda_kernel *fn)
{
    uint32_t *sizes;
    char *name;
    struct kernel *kernel;

    for (kernel = kernels; kernel != NULL; kernel = kernel->next) {
        if (same(&kernel->fn, fn)) {
            return kernel;
        }
    }
    kernel = calloc(1, sizeof(*kernel));
    sizes = calloc(2 * (size_t)fn->n_params + 1, sizeof(*sizes));
    name = strdup(fn->name);
    if (kernel == NULL || sizes == NULL || name == NULL) {
        free(kernel);
        free(sizes);
        free(name);
        return NULL;
    }
    if (fn->n_params != 0) {
        memcpy(sizes, fn->param_bytes, fn->n_params * sizeof(*sizes));
    }
    kernel->fn = *fn;
    kernel->fn.name = name;
    kernel->fn.param_bytes = sizes;
    kernel->offsets = sizes + fn->n_params;
    lay_out(kernel);
    kernel->next = kernels;
    kernels = kernel;
    return kernel;
}

static bool is_kernel(const softcuda_kernel *fn)
{
    size_t bytes = 0;

    if (fn->name == NULL || fn->run == NULL || fn->touch == NULL ||
        fn->n_params > MAX_PARAMS ||
        (fn->n_params != 0 && fn->param_bytes == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < fn->n_params; i++) {
        bytes += fn->param_bytes[i];
    }
    return bytes <= MAX_PARAM_BYTES;
}

/* Whether it is an image of this device.  PTX and everything else is text to
 * it. */
static bool is_image(const void *image)
{
    const softcuda_image *soft_image = image;

    if (strncmp(image, SOFTCUDA_IMAGE_MAGIC, sizeof(soft_image->magic)) != 0 ||
        soft_image->reserved != 0 ||
        (soft_image->n_kernels != 0 && soft_image->kernels == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < soft_image->n_kernels; i++) {
        if (!is_kernel(&soft_image->kernels[i])) {
            return false;
        }
    }
    return true;
}

static void free_module(CUmodule module)
{
    for (uint32_t i = 0; i < module->n; i++) {
        handle_remove(&module->functions[i]);
    }
    free(module->functions);
    free(module);
}

CUresult mod_load(CUmodule *module_p, const void *image)
{
    const softcuda_image *soft_image = image;
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);
    CUmodule module;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (module_p == NULL || image == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_image(image)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }

    module = calloc(1, sizeof(*module));
    if (module == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->ctx = ctx;
    module->functions =
        calloc((size_t)soft_image->n_kernels + 1, sizeof(*module->functions));
    if (module->functions == NULL) {
        goto err_module;
    }
    for (uint32_t i = 0; i < soft_image->n_kernels; i++) {
        struct CUfunc_st *function = &module->functions[i];

        function->ctx = ctx;
        function->kernel = intern(&soft_image->kernels[i]);
        if (function->kernel == NULL ||
            !handle_add(function, HANDLE_FUNCTION)) {
            goto err_module;
        }
        module->n++;
    }
    if (!handle_add(module, HANDLE_MODULE)) {
        goto err_module;
    }
    *module_p = module;
    return CUDA_SUCCESS;

err_module:
    free_module(module);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult mod_unload(CUmodule module)
{
    CUcontext ctx;

    if (!handle_is(module, HANDLE_MODULE)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    ctx = module->ctx;
    stream_run_ctx(ctx); /* the code may be unmapped soon */
    handle_remove(module);
    free_module(module);
    return ctx->sticky;
}

CUresult mod_function(CUfunction *function_p, CUmodule module, const char *name)
{
    if (function_p == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!handle_is(module, HANDLE_MODULE)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (uint32_t i = 0; i < module->n; i++) {
        if (strcmp(module->functions[i].kernel->fn.name, name) == 0) {
            *function_p = &module->functions[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

static bool good_shape(const softcuda_launch *launch)
{
    const uint32_t *grid = launch->grid, *block = launch->block;

    for (int i = 0; i < 3; i++) {
        if (grid[i] == 0 || block[i] == 0 || block[i] > MAX_THREADS) {
            return false;
        }
    }
    return grid[0] <= INT32_MAX && grid[1] <= MAX_GRID_YZ &&
           grid[2] <= MAX_GRID_YZ && block[2] <= MAX_BLOCK_Z &&
           (uint64_t)block[0] * block[1] * block[2] <= MAX_THREADS &&
           launch->shared_bytes <= MAX_SHARED;
}

/* Checks the parameters.  `extra`, the other way to pass them, is not
 * emulated. */
static bool good_params(const struct kernel *kernel, void **params,
                        void **extra)
{
    if (extra != NULL || (kernel->fn.n_params != 0 && params == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < kernel->fn.n_params; i++) {
        if (params[i] == NULL) {
            return false;
        }
    }
    return true;
}

CUresult krn_launch(CUfunction function, const softcuda_launch *launch,
                    CUstream handle, void **params, void **extra)
{
    CUstream stream;
    CUresult code;
    struct op *op;

    if (!handle_is(function, HANDLE_FUNCTION)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    code = stream_issuable(handle, &stream);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (!good_shape(launch) || !good_params(function->kernel, params, extra)) {
        if (stream->capture != NULL) {
            capture_invalidate(stream->capture);
        }
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (function->ctx != stream->ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    op = op_new();
    if (!work_reserve(&op->own, function->kernel->blob_bytes)) {
        op_discard(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->own.kind = WORK_KERNEL;
    op->own.ctx = stream->ctx;
    op->own.u.k.kernel = function->kernel;
    op->own.u.k.launch = *launch;
    work_params(&op->own, params);
    return stream_issue(stream, op);
}
