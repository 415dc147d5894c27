/*
 * memory.h - device and pinned memory, and the copies between them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MEMORY_H
#define SOFTCUDA_MEMORY_H

#include "driver/driver.h"

#include <stddef.h>
#include <stdint.h>

struct alloc;

/* Forgets an allocation and all that was kept for it. */
void mem_forget(struct alloc *alloc);

CUresult mem_info(size_t *free_p, size_t *total_p);
CUresult mem_alloc(CUdeviceptr *address_p, size_t bytes);
CUresult mem_free(CUdeviceptr address);
CUresult mem_alloc_host(void **address_p, size_t bytes);
CUresult mem_free_host(void *address);
CUresult mem_to_device(CUdeviceptr dst, const void *src, size_t bytes);
CUresult mem_to_host(void *dst, CUdeviceptr src, size_t bytes);
CUresult mem_to_device_async(CUdeviceptr dst, const void *src, size_t bytes,
                             CUstream stream);
CUresult mem_to_host_async(void *dst, CUdeviceptr src, size_t bytes,
                           CUstream stream);
CUresult mem_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                        CUstream stream);
/* Both addresses may be anywhere: the addresses tell where. */
CUresult mem_any_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                       CUstream stream);
CUresult mem_peer_async(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                        CUcontext src_ctx, size_t bytes, CUstream stream);
CUresult mem_set(CUdeviceptr dst, uint32_t value, uint32_t width, size_t count,
                 CUstream stream);
/* Nobody needs what the bytes hold: whoever reads them before they are written
 * again is reported. */
CUresult mem_discard(const void *address, size_t bytes, CUstream stream);

#endif
