/*
 * private.h - what the files of lib/device/ share; lib/device only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_DEVICE_PRIVATE_H
#define GH_DEVICE_PRIVATE_H

#include "device/device.h"
#include "driver/driver.h"
#include "kernels/kernels.h"

/* The files that `driver` of gh_device_open() stands for. */
#define GH_CUDA_NAME "libcuda.so.1"
#define GH_SOFT_NAME "libgraphhooks-softcuda.so"

struct gh_device {
    struct driver drv;
    struct gh_device_info info;
    CUdevice device;
    CUcontext ctx;
    bool retained; /* ctx is the primary one, to be released */
    uint32_t limit_s; /* of a wait; 0: none */
    bool stuck;       /* a wait has not ended in that time */
    softcuda_unwritten_fn *unwritten; /* all are NULL on a real driver */
    softcuda_discard_fn *discard;
    softcuda_gather_fn *gather;

    void *batch;       /* cuMemcpyBatchAsync; NULL: the driver has none */
    int batch_version; /* the CUDA version of its signature */

    CUmodule module; /* of kernels/ */
    CUfunction copy_small, copy_large, compare, offsets_small, offsets_large;
    CUfunction send, stash_pages, stash_rows, gradient;
    CUdeviceptr verdict; /* where the compare writes */
};

/* Fails with the name of the entry, the code and the code's name. */
gh_status gh_device_fail(const struct gh_device *dev, CUresult result,
                         const char *entry, gh_error *err);

static inline gh_status gh_device_status(const struct gh_device *dev,
                                         CUresult result, const char *entry,
                                         gh_error *err)
{
    return result == CUDA_SUCCESS ? GH_OK
                                  : gh_device_fail(dev, result, entry, err);
}

/* Written as gh_device_call(dev, err, cuMemFree, (address)). */
#define gh_device_call(dev, err, entry, args) \
    gh_device_status((dev), (dev)->drv.entry args, #entry, (err))

/* memory.c; what is freed, where it is not 0.  Frees nothing while the device
 * is stuck. */
struct gh_goes {
    CUdeviceptr memory, opened;
    void *pinned;
    CUmodule module;
    CUstream stream;
};
void gh_device_release(struct gh_device *dev, const struct gh_goes *goes);

/* batch.c; the driver's version must be known */
void gh_device_batch_find(struct gh_device *dev);

/* kernels.c; the context must be current */
gh_status gh_device_kernels_load(struct gh_device *dev, gh_error *err);
void gh_device_kernels_unload(struct gh_device *dev);

#endif
