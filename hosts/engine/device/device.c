/*
 * device.c - opens the device, keeps its first failure, launches kernels.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "device/device.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int device_check(struct device *dev, const char *entry, CUresult code)
{
    const char *name = NULL;

    if (code == CUDA_SUCCESS) {
        return 0;
    }
    if (dev->code != CUDA_SUCCESS) {
        return -1;
    }

    dev->code = code;
    if (dev->drv.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) {
        name = "a code without a name";
    }
    snprintf(dev->error, sizeof(dev->error), "%s failed with %d (%s)", entry,
             code, name);
    return -1;
}

int device_fail(struct device *dev, const char *format, ...)
{
    va_list args;

    if (dev->code == CUDA_SUCCESS) {
        dev->code = CUDA_ERROR_UNKNOWN;
        va_start(args, format);
        vsnprintf(dev->error, sizeof(dev->error), format, args);
        va_end(args);
    }
    return -1;
}

void device_forgive(struct device *dev)
{
    dev->code = CUDA_SUCCESS;
    dev->error[0] = '\0';
}

static int load_kernels(struct device *dev)
{
    const void *image = engine_ptx;

    if (dev->soft) {
        image = &engine_soft_image;
    }
    DEVICE_CALL(dev, cuModuleLoadData, &dev->module, image);
    for (int i = 0; i < KERNEL_COUNT; i++) {
        DEVICE_CALL(dev, cuModuleGetFunction, &dev->kernels[i], dev->module,
                    engine_kernels[i].name);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

static int open_device(struct device *dev, bool soft, int ordinal)
{
    int count = 0;

    dev->soft = soft;
    DEVICE_CALL(dev, cuInit, 0);
    DEVICE_CALL(dev, cuDeviceGetCount, &count);
    if (dev->code == CUDA_SUCCESS && count == 0) {
        device_check(dev, "cuDeviceGetCount", CUDA_ERROR_NO_DEVICE);
    }
    DEVICE_CALL(dev, cuDeviceGet, &dev->id, count > 0 ? ordinal % count : 0);
    DEVICE_CALL(dev, cuDeviceGetName, dev->name, (int)sizeof(dev->name),
                dev->id);
    DEVICE_CALL(dev, cuDeviceGetAttribute, &dev->multiprocessors,
                CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev->id);
    if (DEVICE_CALL(dev, cuDevicePrimaryCtxRetain, &dev->context, dev->id) ==
        0) {
        dev->retained = true;
    }
    DEVICE_CALL(dev, cuCtxSetCurrent, dev->context);
    return load_kernels(dev);
}

int device_open_driver(struct device *dev, bool soft)
{
    return open_device(dev, soft, 0);
}

int device_open(struct device *dev, const char *path, int ordinal)
{
    memset(dev, 0, sizeof(*dev));
    dev->path = path;
    if (driver_load(path, &dev->drv, dev->error, sizeof(dev->error)) != 0) {
        dev->code = CUDA_ERROR_NOT_INITIALIZED;
        return -1;
    }
    return open_device(
        dev, dlsym(dev->drv.library, "softcuda_configure") != NULL, ordinal);
}

void device_close(struct device *dev)
{
    if (dev->module != NULL) {
        (void)dev->drv.cuModuleUnload(dev->module);
    }
    if (dev->retained) {
        (void)dev->drv.cuCtxSetCurrent(NULL);
        (void)dev->drv.cuDevicePrimaryCtxRelease(dev->id);
    }
    dev->module = NULL;
    dev->retained = false;
}

void *device_alloc(struct device *dev, size_t bytes)
{
    CUdeviceptr address = 0;

    if (DEVICE_CALL(dev, cuMemAlloc, &address, bytes) != 0) {
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void device_free(struct device *dev, void *address)
{
    if (address != NULL) {
        (void)dev->drv.cuMemFree(device_address(address));
    }
}

void *device_alloc_host(struct device *dev, size_t bytes)
{
    void *address = NULL;

    if (DEVICE_CALL(dev, cuMemAllocHost, &address, bytes) != 0) {
        return NULL;
    }
    return address;
}

void device_free_host(struct device *dev, void *address)
{
    if (address != NULL) {
        (void)dev->drv.cuMemFreeHost(address);
    }
}

int device_synchronize(struct device *dev, CUstream stream)
{
    return DEVICE_CALL(dev, cuStreamSynchronize, stream);
}

void device_launch(const struct queue *queue, enum engine_kernel kernel,
                   size_t grid_x, size_t grid_y, size_t grid_z,
                   const void *args)
{
    struct device *dev = queue->dev;
    void *params[] = { (void *)(uintptr_t)args };

    DEVICE_CALL(dev, cuLaunchKernel, dev->kernels[kernel], (unsigned)grid_x,
                (unsigned)grid_y, (unsigned)grid_z,
                engine_kernels[kernel].threads, 1, 1, 0, queue->stream, params,
                NULL);
}
