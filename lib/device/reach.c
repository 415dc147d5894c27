/*
 * reach.c - other ranks' memory, and words that streams wait for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

#include <string.h>

_Static_assert(sizeof(CUipcMemHandle) == sizeof(((struct gh_shared_memory *)0)
                                                    ->handle),
               "a handle fits");

gh_status gh_device_put(struct gh_device *dev, void *dst, const void *src,
                        uint64_t bytes, void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuMemcpyAsync,
                          ((uintptr_t)dst, (uintptr_t)src, bytes, stream));
}

bool gh_device_has_words(const struct gh_device *dev)
{
    return dev->drv.cuStreamWaitValue32 != NULL &&
           dev->drv.cuStreamWriteValue32 != NULL;
}

gh_status gh_device_word_write(struct gh_device *dev, void *word,
                               uint32_t value, void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuStreamWriteValue32,
                          (stream, (uintptr_t)word, value,
                           CU_STREAM_WRITE_VALUE_DEFAULT));
}

gh_status gh_device_word_wait(struct gh_device *dev, const void *word,
                              uint32_t value, void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuStreamWaitValue32,
                          (stream, (uintptr_t)word, value,
                           CU_STREAM_WAIT_VALUE_EQ));
}

void *gh_device_context(const struct gh_device *dev)
{
    return dev->ctx;
}

gh_status gh_device_reach(struct gh_device *dev, int ordinal, void *context,
                          bool *can_p, gh_error *err)
{
    gh_status status;
    CUresult result;
    int can = 0;

    *can_p = true;
    if (ordinal == dev->device) {
        return GH_OK;
    }
    status = gh_device_call(dev, err, cuDeviceCanAccessPeer,
                            (&can, dev->device, ordinal));
    if (status != GH_OK || !can) {
        *can_p = false;
        return status;
    }
    result = dev->drv.cuCtxEnablePeerAccess(context, 0);
    if (result != CUDA_SUCCESS &&
        result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        *can_p = false;
        return gh_device_fail(dev, result, "cuCtxEnablePeerAccess", err);
    }
    return GH_OK;
}

gh_status gh_device_share(struct gh_device *dev, const void *address,
                          struct gh_shared_memory *shared, gh_error *err)
{
    CUdeviceptr base = 0;
    CUipcMemHandle handle;
    size_t bytes = 0;
    gh_status status = gh_device_call(dev, err, cuMemGetAddressRange,
                                      (&base, &bytes, (uintptr_t)address));

    if (status == GH_OK) {
        status = gh_device_call(dev, err, cuIpcGetMemHandle, (&handle, base));
    }
    if (status == GH_OK) {
        shared->offset = (uintptr_t)address - base;
        memcpy(shared->handle, &handle, sizeof(handle));
    }
    return status;
}

gh_status gh_device_open_shared(struct gh_device *dev,
                                const struct gh_shared_memory *shared,
                                void **base_p, gh_error *err)
{
    CUdeviceptr base = 0;
    CUipcMemHandle handle;
    gh_status status;

    memcpy(&handle, shared->handle, sizeof(handle));
    status = gh_device_call(dev, err, cuIpcOpenMemHandle,
                            (&base, handle,
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (status == GH_OK) {
        *base_p = (void *)(uintptr_t)base;
    }
    return status;
}

void gh_device_close_shared(struct gh_device *dev, void *base)
{
    if (base != NULL) {
        dev->drv.cuIpcCloseMemHandle((uintptr_t)base);
    }
}
