/*
 * reach.c - the memory of other ranks, and words that streams wait for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

#include <string.h>

/* The most words in one call; a driver takes fewer than 256. */
enum {
    WORDS_AT_ONCE = 128
};

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

static gh_status one_word(struct gh_device *dev, const struct gh_word *word,
                          void *stream, gh_error *err)
{
    return word->waits
               ? gh_device_call(dev, err, cuStreamWaitValue32,
                                (stream, (uintptr_t)word->at, word->value,
                                 CU_STREAM_WAIT_VALUE_EQ))
               : gh_device_call(dev, err, cuStreamWriteValue32,
                                (stream, (uintptr_t)word->at, word->value,
                                 CU_STREAM_WRITE_VALUE_DEFAULT));
}

static CUresult words_at_once(struct gh_device *dev,
                              const struct gh_word *words, uint32_t n,
                              CUstream stream)
{
    CUstreamBatchMemOpParams ops[WORDS_AT_ONCE];

    memset(ops, 0, n * sizeof(*ops));
    for (uint32_t i = 0; i < n; i++) {
        if (words[i].waits) {
            ops[i].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
            ops[i].waitValue.address = (uintptr_t)words[i].at;
            ops[i].waitValue.value = words[i].value;
            ops[i].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
        } else {
            ops[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            ops[i].writeValue.address = (uintptr_t)words[i].at;
            ops[i].writeValue.value = words[i].value;
            ops[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        }
    }
    return dev->drv.cuStreamBatchMemOp(stream, n, ops, 0);
}

/* Whether the driver refused the call as a whole, because it has no such call
 * or takes none in a capture.  Then nothing was issued, and the words can be
 * issued in another way.  Otherwise a word might be waited for twice, and the
 * second wait would never end. */
static bool is_refused(struct gh_device *dev, CUresult result)
{
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        dev->drv.cuStreamBatchMemOp = NULL;
    }
    return result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static gh_status some_words(struct gh_device *dev, const struct gh_word *words,
                            uint32_t n, void *stream, uint64_t *calls_p,
                            gh_error *err)
{
    gh_status status = GH_OK;

    if (n > 1 && dev->drv.cuStreamBatchMemOp != NULL) {
        const CUresult result = words_at_once(dev, words, n, stream);

        if (!is_refused(dev, result)) {
            ++*calls_p;
            return gh_device_status(dev, result, "cuStreamBatchMemOp", err);
        }
    }
    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = one_word(dev, &words[i], stream, err);
        ++*calls_p;
    }
    return status;
}

gh_status gh_device_words(struct gh_device *dev, const struct gh_word *words,
                          uint32_t n, void *stream, uint64_t *calls_p,
                          gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t at = 0; at < n && status == GH_OK; at += WORDS_AT_ONCE) {
        const uint32_t left = n - at;

        status = some_words(dev, words + at,
                            left < WORDS_AT_ONCE ? left : WORDS_AT_ONCE,
                            stream, calls_p, err);
    }
    return status;
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
        shared->room = bytes - shared->offset;
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
        gh_device_release(dev, &(struct gh_goes){ .opened = (uintptr_t)base });
    }
}
