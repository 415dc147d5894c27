/*
 * batch.c - several copies in one call, where the driver has that.
 *
 * cuMemcpyBatchAsync came with CUDA 12.8, and lost an argument in 13.0, so
 * each driver is asked for the form of its own version.  In a capture it
 * returns 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) and leaves the capture
 * as it is, so this code is handled here and goes no further.  If the driver
 * refuses a batch, all its copies are issued one by one.  Some of them may
 * have been issued already, but a copy that is made twice on one stream gives
 * the same bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/private.h"

#include <string.h>

/* The layout of CUmemcpyAttributes. */
struct copy_attributes {
    int order; /* the order in which sources are read */
    struct {
        int type, id;
    } source_hint, target_hint; /* 0: none */
    unsigned int flags;
};
#define ORDER_OF_STREAM 1
#define BESIDE_COMPUTE 1u /* a flag: the multiprocessors are for others */

typedef CUresult batch_12080(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                             size_t n, struct copy_attributes *attributes,
                             size_t *first, size_t n_attributes,
                             size_t *failed_p, CUstream stream);
typedef CUresult batch_13000(const CUdeviceptr *to, const CUdeviceptr *from,
                             const size_t *bytes, size_t n,
                             struct copy_attributes *attributes,
                             size_t *first, size_t n_attributes,
                             CUstream stream);

void gh_device_batch_find(struct gh_device *dev)
{
    const int version = dev->info.driver_version;

    dev->batch_version = version >= 13000   ? 13000
                         : version >= 12080 ? 12080
                                            : 0;
    dev->batch = dev->batch_version == 0
                     ? NULL
                     : driver_find(&dev->drv, "cuMemcpyBatchAsync",
                                   dev->batch_version);
}

bool gh_device_has_batches(const struct gh_device *dev)
{
    return dev->batch != NULL;
}

static CUresult issue(const struct gh_device *dev,
                      const struct gh_copies_out *copies, unsigned int flags,
                      CUstream stream)
{
    struct copy_attributes attributes = { .order = ORDER_OF_STREAM,
                                          .flags = flags };
    struct gh_copies_out c = *copies;
    size_t first = 0, failed;
    batch_12080 *older;
    batch_13000 *newer;

    if (dev->batch_version == 12080) {
        memcpy(&older, &dev->batch, sizeof(older));
        return older(c.to, c.from, c.bytes, c.n, &attributes, &first, 1,
                     &failed, stream);
    }
    memcpy(&newer, &dev->batch, sizeof(newer));
    return newer(c.to, c.from, c.bytes, c.n, &attributes, &first, 1, stream);
}

static gh_status one_by_one(struct gh_device *dev,
                            const struct gh_copies_out *copies, void *stream,
                            gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < copies->n && status == GH_OK; i++) {
        status = gh_device_call(dev, err, cuMemcpyDtoHAsync,
                                ((void *)(uintptr_t)copies->to[i],
                                 copies->from[i], copies->bytes[i], stream));
    }
    return status;
}

gh_status gh_device_copy_all_out(struct gh_device *dev,
                                 const struct gh_copies_out *copies,
                                 void *stream, gh_error *err)
{
    CUresult result;

    if (copies->n > 1 && dev->batch != NULL) {
        result = issue(dev, copies, 0, stream);
        if (result == CUDA_SUCCESS) {
            return GH_OK;
        }
        if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            dev->batch = NULL; /* it would refuse the next one too */
        }
    }
    return one_by_one(dev, copies, stream, err);
}

/* A byte that another rank has cleared must not be set again.  So all codes fail
 * for that but those of a call that the driver does not make. */
gh_status gh_device_put_all(struct gh_device *dev,
                            const struct gh_copies_out *copies, bool repeated,
                            void *stream, bool *taken_p, gh_error *err)
{
    const CUresult result = dev->batch != NULL
                                ? issue(dev, copies, BESIDE_COMPUTE, stream)
                                : CUDA_ERROR_NOT_SUPPORTED;

    *taken_p = result == CUDA_SUCCESS ||
               (!repeated && result != CUDA_ERROR_NOT_SUPPORTED &&
                result != CUDA_ERROR_INVALID_VALUE &&
                result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!*taken_p) {
        dev->batch = NULL;
        return GH_OK;
    }
    return gh_device_status(dev, result, "cuMemcpyBatchAsync", err);
}
