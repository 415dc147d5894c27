/*
 * mapping.c - reserved addresses, and device memory that is mapped to them.
 *
 * A mapping keeps its memory, so the handle is released at once, and unmapping
 * gives the memory back to the driver.  Unlike cuMemFree, cuMemUnmap need not
 * wait for work that uses the memory: the caller does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

static CUmemAllocationProp prop_of(const struct gh_device *dev)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device }
    };
}

gh_status gh_device_granule(struct gh_device *dev, uint64_t *bytes_p,
                            gh_error *err)
{
    const CUmemAllocationProp prop = prop_of(dev);
    size_t bytes = 0;
    int can = 0;
    gh_status status;

    if (dev->drv.cuDeviceGetAttribute(
            &can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            dev->device) != CUDA_SUCCESS ||
        can == 0) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "device %d, %.60s, maps no memory to reserved addresses "
                       "(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_"
                       "SUPPORTED is 0)",
                       dev->info.ordinal, dev->info.name);
    }
    status =
        gh_device_call(dev, err, cuMemGetAllocationGranularity,
                       (&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (status == GH_OK) {
        *bytes_p = bytes;
    }
    return status;
}

gh_status gh_device_reserve(struct gh_device *dev, uint64_t bytes,
                            void **address_p, gh_error *err)
{
    CUdeviceptr address = 0;
    const gh_status status = gh_device_call(dev, err, cuMemAddressReserve,
                                            (&address, bytes, 0, 0, 0));

    if (status == GH_OK) {
        *address_p = (void *)(uintptr_t)address;
    }
    return status;
}

void gh_device_unreserve(struct gh_device *dev, void *address, uint64_t bytes)
{
    if (!dev->stuck) {
        dev->drv.cuMemAddressFree((uintptr_t)address, bytes);
    }
}

/* As gh_device_map_file(). */
static gh_status take(struct gh_device *dev, uint64_t bytes, int *file_p,
                      CUmemGenericAllocationHandle *memory_p, gh_error *err)
{
    const CUmemAllocationHandleType type =
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp prop = prop_of(dev);
    gh_status status;

    if (file_p != NULL && *file_p >= 0) {
        return gh_device_call(dev, err, cuMemImportFromShareableHandle,
                              (memory_p, (void *)(intptr_t)*file_p, type));
    }
    prop.requestedHandleTypes = file_p != NULL ? type : 0;
    status = gh_device_call(dev, err, cuMemCreate, (memory_p, bytes, &prop, 0));
    if (status == GH_OK && file_p != NULL) {
        status = gh_device_call(dev, err, cuMemExportToShareableHandle,
                                (file_p, *memory_p, type, 0));
        if (status != GH_OK) {
            dev->drv.cuMemRelease(*memory_p);
        }
    }
    return status;
}

gh_status gh_device_map_file(struct gh_device *dev, void *address,
                             uint64_t bytes, int *file_p, gh_error *err)
{
    const CUdeviceptr at = (uintptr_t)address;
    CUmemGenericAllocationHandle memory = 0;
    gh_status status = take(dev, bytes, file_p, &memory, err);

    if (status != GH_OK) {
        return status;
    }
    status = gh_device_call(dev, err, cuMemMap, (at, bytes, 0, memory, 0));
    dev->drv.cuMemRelease(memory);
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_allow(dev, address, bytes, dev->device, err);
    if (status != GH_OK) {
        dev->drv.cuMemUnmap(at, bytes);
    }
    return status;
}

gh_status gh_device_map(struct gh_device *dev, void *address, uint64_t bytes,
                        gh_error *err)
{
    return gh_device_map_file(dev, address, bytes, NULL, err);
}

gh_status gh_device_allow(struct gh_device *dev, void *address, uint64_t bytes,
                          int ordinal, gh_error *err)
{
    const CUmemAccessDesc access = {
        { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal },
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    };

    return gh_device_call(dev, err, cuMemSetAccess,
                          ((uintptr_t)address, bytes, &access, 1));
}

gh_status gh_device_unmap(struct gh_device *dev, void *address, uint64_t bytes,
                          gh_error *err)
{
    if (dev->stuck) {
        return gh_fail(err, GH_ERR_DEVICE,
                       "the device has not ended its work, which may use the "
                       "memory");
    }
    return gh_device_call(dev, err, cuMemUnmap, ((uintptr_t)address, bytes));
}
