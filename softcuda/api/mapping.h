/*
 * mapping.h - reserved addresses, and device memory that is mapped to them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MAPPING_H
#define SOFTCUDA_MAPPING_H

#include "driver/driver.h"

#include <stddef.h>

CUresult vmm_granularity(size_t *bytes_p, const CUmemAllocationProp *prop,
                         CUmemAllocationGranularity_flags option);
CUresult vmm_reserve(CUdeviceptr *address_p, size_t bytes, size_t alignment,
                     CUdeviceptr wish, unsigned long long flags);
CUresult vmm_unreserve(CUdeviceptr address, size_t bytes);
CUresult vmm_create(CUmemGenericAllocationHandle *handle_p, size_t bytes,
                    const CUmemAllocationProp *prop, unsigned long long flags);
CUresult vmm_release(CUmemGenericAllocationHandle handle);
CUresult vmm_export(void *shared_p, CUmemGenericAllocationHandle handle,
                    CUmemAllocationHandleType type, unsigned long long flags);
CUresult vmm_import(CUmemGenericAllocationHandle *handle_p, void *shared,
                    CUmemAllocationHandleType type);
CUresult vmm_map(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult vmm_unmap(CUdeviceptr address, size_t bytes);
CUresult vmm_access(CUdeviceptr address, size_t bytes,
                    const CUmemAccessDesc *desc, size_t count);

#endif
