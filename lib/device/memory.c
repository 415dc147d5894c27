/*
 * memory.c - device memory for the library's own buffers, pinned memory of the
 * host, and the copies between them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/job.h"
#include "device/private.h"

gh_status gh_device_total(struct gh_device *dev, uint64_t *bytes_p,
                          gh_error *err)
{
    size_t available = 0, total = 0;
    const gh_status status =
        gh_device_call(dev, err, cuMemGetInfo, (&available, &total));

    *bytes_p = total;
    return status;
}

gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *err)
{
    CUdeviceptr address = 0;
    gh_status status;

    status = gh_device_call(dev, err, cuMemAlloc, (&address, bytes));
    if (status == GH_OK) {
        *address_p = (void *)(uintptr_t)address;
    }
    return status;
}

static void release(struct gh_device *dev, const void *arg)
{
    const struct gh_goes *goes = arg;

    if (goes->memory != 0) {
        dev->drv.cuMemFree(goes->memory);
    }
    if (goes->pinned != NULL) {
        dev->drv.cuMemFreeHost(goes->pinned);
    }
    if (goes->opened != 0) {
        dev->drv.cuIpcCloseMemHandle(goes->opened);
    }
    if (goes->module != NULL) {
        dev->drv.cuModuleUnload(goes->module);
    }
    if (goes->stream != NULL) {
        dev->drv.cuStreamDestroy(goes->stream);
    }
}

void gh_device_release(struct gh_device *dev, const struct gh_goes *goes)
{
    if (dev->stuck) {
        return;
    }
    if (dev->limit_s == 0) {
        release(dev, goes);
    } else if (!gh_job_end(gh_job_begin(dev, dev->limit_s, release, goes,
                                        sizeof(*goes)))) {
        dev->stuck = true;
    }
}

void gh_device_stream_destroy(struct gh_device *dev, void *stream)
{
    if (stream != NULL) {
        gh_device_release(dev, &(struct gh_goes){ .stream = stream });
    }
}

void gh_device_free(struct gh_device *dev, void *address)
{
    if (address != NULL) {
        gh_device_release(dev,
                          &(struct gh_goes){ .memory = (uintptr_t)address });
    }
}

gh_status gh_device_copy(struct gh_device *dev, void *dst, const void *src,
                         uint64_t bytes, void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuMemcpyDtoDAsync,
                          ((uintptr_t)dst, (uintptr_t)src, bytes, stream));
}

gh_status gh_device_zero(struct gh_device *dev, void *address, uint64_t bytes,
                         void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuMemsetD8Async,
                          ((uintptr_t)address, 0, bytes, stream));
}

void gh_device_discard(struct gh_device *dev, void *address, uint64_t bytes,
                       void *stream, void *event)
{
    if (dev->discard != NULL && bytes != 0) {
        (void)dev->discard(address, bytes, stream, event);
    }
}

void gh_device_spoil(struct gh_device *dev, void *address, uint64_t bytes,
                     uint8_t byte, void *stream, void *event)
{
    if (dev->discard != NULL || bytes == 0) {
        gh_device_discard(dev, address, bytes, stream, event);
        return;
    }
    (void)dev->drv.cuMemsetD8Async((uintptr_t)address, byte, bytes, stream);
    if (event != NULL) {
        (void)gh_device_event_record(dev, event, stream, NULL);
    }
}

gh_status gh_device_host_alloc(struct gh_device *dev, uint64_t bytes,
                               void **address_p, gh_error *err)
{
    return gh_device_call(dev, err, cuMemAllocHost, (address_p, bytes));
}

void gh_device_host_free(struct gh_device *dev, void *address)
{
    if (address != NULL) {
        gh_device_release(dev, &(struct gh_goes){ .pinned = address });
    }
}

gh_status gh_device_copy_out(struct gh_device *dev, void *host,
                             const void *device, uint64_t bytes, void *stream,
                             gh_error *err)
{
    return gh_device_call(dev, err, cuMemcpyDtoHAsync,
                          (host, (uintptr_t)device, bytes, stream));
}

gh_status gh_device_copy_back(struct gh_device *dev, void *device,
                              const void *host, uint64_t bytes, void *stream,
                              gh_error *err)
{
    return gh_device_call(dev, err, cuMemcpyHtoDAsync,
                          ((uintptr_t)device, host, bytes, stream));
}
