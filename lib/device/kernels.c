/*
 * kernels.c - loads the library's kernels and launches them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

#include <stdlib.h>

struct gh_copy {
    struct gh_copy_batch batch;
};

static gh_status find_functions(struct gh_device *dev, gh_error *err)
{
    const struct {
        CUfunction *function;
        const char *name;
    } wanted[] = {
        { &dev->copy_small, GH_KERNEL_COPY_SMALL },
        { &dev->copy_large, GH_KERNEL_COPY_LARGE },
        { &dev->compare, GH_KERNEL_COMPARE },
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        gh_status status;

        status =
            gh_device_call(dev, err, cuModuleGetFunction,
                           (wanted[i].function, dev->module, wanted[i].name));
        if (status != GH_OK) {
            return status;
        }
    }
    return GH_OK;
}

gh_status gh_device_kernels_load(struct gh_device *dev, gh_error *err)
{
    const void *image =
        dev->info.soft ? (const void *)&gh_kernels_soft : gh_kernels_ptx;
    gh_status status;

    status = gh_device_call(dev, err, cuModuleLoadData, (&dev->module, image));
    if (status != GH_OK) {
        return status;
    }
    status = find_functions(dev, err);
    if (status != GH_OK) {
        goto err_module;
    }
    status =
        gh_device_call(dev, err, cuMemAlloc, (&dev->verdict, sizeof(uint64_t)));
    if (status != GH_OK) {
        goto err_module;
    }
    return GH_OK;

err_module:
    dev->drv.cuModuleUnload(dev->module);
    return status;
}

void gh_device_kernels_unload(struct gh_device *dev)
{
    dev->drv.cuMemFree(dev->verdict);
    dev->drv.cuModuleUnload(dev->module);
}

gh_status gh_device_copy_create(struct gh_device *dev, uint32_t n,
                                struct gh_copy **copy_p, gh_error *err)
{
    struct gh_copy *copy;

    (void)dev;
    if (n > GH_COPY_LARGE) {
        return gh_fail(err, GH_ERR_INTERNAL, "a batch of %u copies", n);
    }
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u copies", n);
    }
    *copy_p = copy;
    return GH_OK;
}

void gh_device_copy_destroy(struct gh_copy *copy)
{
    free(copy);
}

void gh_device_copy_set(struct gh_copy *copy, uint32_t i, void *dst,
                        const void *src, uint64_t bytes)
{
    copy->batch.entries[i] = (struct gh_copy_entry){ .dst = (uintptr_t)dst,
                                                     .src = (uintptr_t)src,
                                                     .bytes = bytes };
}

static gh_status launch(struct gh_device *dev, CUfunction function,
                        uint32_t blocks, void **params, void *stream,
                        gh_error *err)
{
    return gh_device_call(dev, err, cuLaunchKernel,
                          (function, blocks, 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
                           stream, params, NULL));
}

gh_status gh_device_copy_launch(struct gh_device *dev, struct gh_copy *copy,
                                uint32_t n, void *stream, uint64_t *bytes_p,
                                gh_error *err)
{
    void *params[] = { &copy->batch };
    uint64_t bytes = 0;
    uint32_t blocks;

    for (uint32_t i = 0; i < n; i++) {
        bytes += copy->batch.entries[i].bytes;
    }
    *bytes_p = bytes;

    copy->batch.n_entries = n;
    blocks = gh_copy_batch_plan(&copy->batch);
    if (blocks == 0) {
        return GH_OK;
    }
    return launch(dev, n <= GH_COPY_SMALL ? dev->copy_small : dev->copy_large,
                  blocks, params, stream, err);
}

gh_status gh_device_compare(struct gh_device *dev, const void *a, const void *b,
                            uint64_t bytes, void *stream, uint64_t *first_p,
                            gh_error *err)
{
    uint64_t args[GH_COMPARE_PARAMS] = { (uintptr_t)a, (uintptr_t)b, bytes,
                                         dev->verdict };
    void *params[] = { &args[0], &args[1], &args[2], &args[3] };
    uint64_t first = UINT64_MAX;
    gh_status status;

    status = gh_device_call(dev, err, cuMemsetD8Async,
                            (dev->verdict, 0xff, sizeof(first), stream));
    if (status != GH_OK) {
        return status;
    }
    status =
        launch(dev, dev->compare, gh_compare_plan(bytes), params, stream, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_call(dev, err, cuMemcpyDtoHAsync,
                            (&first, dev->verdict, sizeof(first), stream));
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_stream_wait(dev, stream, err);
    if (status == GH_OK) {
        *first_p = first;
    }
    return status;
}
