/*
 * immediate.c - see immediate.h.
 *
 * With touches checked, every allocation is copied before a launch and
 * compared after it: a byte that changed outside the declared writes is a
 * violation, and so is a result that changes when everything outside the
 * declared reads is replaced by NaN.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/engine/immediate.h"

#include "softcuda/softcuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_BLOCKS = 64
};

static struct block {
    char *address;
    size_t bytes;
    char *before, *after;
    unsigned char *read, *written; /* one flag a byte */
} blocks[MAX_BLOCKS];

static int checking;
static unsigned violations;

void immediate_check_touches(int on)
{
    checking = on;
    violations = 0;
}

unsigned immediate_violations(void)
{
    return violations;
}

static CUresult mem_alloc(CUdeviceptr *address_p, size_t bytes)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].address == NULL) {
            blocks[i].bytes = bytes;
            blocks[i].address = malloc(bytes);
            blocks[i].before = malloc(bytes);
            blocks[i].after = malloc(bytes);
            blocks[i].read = malloc(bytes);
            blocks[i].written = malloc(bytes);
            memset(blocks[i].address, 0xff, bytes); /* NaN */
            *address_p = (CUdeviceptr)(uintptr_t)blocks[i].address;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult mem_get_info(size_t *free_p, size_t *total_p)
{
    *free_p = *total_p = 0; /* nobody counts memory here */
    return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr address)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if ((CUdeviceptr)(uintptr_t)blocks[i].address == address) {
            free(blocks[i].address);
            free(blocks[i].before);
            free(blocks[i].after);
            free(blocks[i].read);
            free(blocks[i].written);
            memset(&blocks[i], 0, sizeof(blocks[i]));
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static void mark(void *sink, const void *address, size_t bytes, int write)
{
    const char *first = address;

    (void)sink;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *block = &blocks[i];

        if (block->address != NULL && first >= block->address &&
            first + bytes <= block->address + block->bytes) {
            memset((write ? block->written : block->read) +
                       (first - block->address),
                   1, bytes);
            return;
        }
    }
    violations++; /* a range of memory that was never allocated */
}

static void begin_check(const softcuda_kernel *kernel,
                        const softcuda_launch *launch, void *const *params)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *block = &blocks[i];

        if (block->address != NULL) {
            memset(block->read, 0, block->bytes);
            memset(block->written, 0, block->bytes);
            memcpy(block->before, block->address, block->bytes);
        }
    }
    kernel->touch(launch, params, mark, NULL);
}

static void end_check(const softcuda_kernel *kernel,
                      const softcuda_launch *launch, void *const *params)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *block = &blocks[i];

        for (size_t b = 0; block->address != NULL && b < block->bytes; b++) {
            if (!block->written[b] && block->address[b] != block->before[b]) {
                violations++;
                break;
            }
        }
    }
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *block = &blocks[i];

        for (size_t b = 0; block->address != NULL && b < block->bytes; b++) {
            block->after[b] = block->address[b];
            block->address[b] = block->read[b] || block->written[b]
                                    ? block->before[b]
                                    : (char)0xff;
        }
    }
    kernel->run(launch, params);
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *block = &blocks[i];

        for (size_t b = 0; block->address != NULL && b < block->bytes; b++) {
            if (block->written[b] && block->address[b] != block->after[b]) {
                violations++;
                break;
            }
        }
        if (block->address != NULL) {
            memcpy(block->address, block->after, block->bytes);
        }
    }
}

static CUresult launch_kernel(CUfunction function, unsigned gx, unsigned gy,
                              unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream,
                              void **params, void **extra)
{
    const softcuda_kernel *kernel = (const void *)function;
    const softcuda_launch launch = { .grid = { gx, gy, gz },
                                     .block = { bx, by, bz },
                                     .shared_bytes = shared };

    (void)stream;
    (void)extra;
    if (checking) {
        begin_check(kernel, &launch, params);
    }
    kernel->run(&launch, params);
    if (checking) {
        end_check(kernel, &launch, params);
    }
    return CUDA_SUCCESS;
}

static CUresult module_load(CUmodule *module_p, const void *image)
{
    *module_p = (CUmodule)(uintptr_t)image;
    return CUDA_SUCCESS;
}

static CUresult module_unload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function_p, CUmodule module,
                             const char *name)
{
    const softcuda_image *image = (const void *)module;

    for (uint32_t i = 0; i < image->n_kernels; i++) {
        if (strcmp(image->kernels[i].name, name) == 0) {
            *function_p = (CUfunction)(uintptr_t)&image->kernels[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult init(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult get_count(int *count_p)
{
    *count_p = 1;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device_p, int ordinal)
{
    *device_p = ordinal;
    return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int bytes, CUdevice device)
{
    (void)device;
    memset(name, 0, (size_t)bytes);
    memcpy(name, "immediate", sizeof("immediate"));
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value_p, CUdevice_attribute attribute,
                              CUdevice device)
{
    (void)attribute;
    (void)device;
    *value_p = 1;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ctx_p, CUdevice device)
{
    static char context;

    (void)device;
    *ctx_p = (CUcontext)(void *)&context;
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult code, const char **name_p)
{
    (void)code;
    *name_p = "IMMEDIATE";
    return CUDA_SUCCESS;
}

static CUresult alloc_host(void **address_p, size_t bytes)
{
    *address_p = malloc(bytes);
    return CUDA_SUCCESS;
}

static CUresult free_host(void *address)
{
    free(address);
    return CUDA_SUCCESS;
}

static CUresult to_device(CUdeviceptr dst, const void *src, size_t bytes)
{
    memcpy((void *)(uintptr_t)dst, src, bytes);
    return CUDA_SUCCESS;
}

static CUresult to_host(void *dst, CUdeviceptr src, size_t bytes)
{
    memcpy(dst, (void *)(uintptr_t)src, bytes);
    return CUDA_SUCCESS;
}

static CUresult to_device_async(CUdeviceptr dst, const void *src, size_t bytes,
                                CUstream stream)
{
    (void)stream;
    return to_device(dst, src, bytes);
}

static CUresult to_host_async(void *dst, CUdeviceptr src, size_t bytes,
                              CUstream stream)
{
    (void)stream;
    return to_host(dst, src, bytes);
}

static CUresult set_words(CUdeviceptr dst, unsigned value, size_t count,
                          CUstream stream)
{
    unsigned *words = (void *)(uintptr_t)dst;

    (void)stream;
    for (size_t i = 0; i < count; i++) {
        words[i] = value;
    }
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream_p, unsigned flags)
{
    (void)flags;
    *stream_p = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event_p, unsigned flags)
{
    (void)flags;
    *event_p = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    return CUDA_SUCCESS;
}

void immediate_driver(struct driver *drv)
{
    memset(drv, 0, sizeof(*drv));
    drv->cuInit = init;
    drv->cuGetErrorName = error_name;
    drv->cuDeviceGetCount = get_count;
    drv->cuDeviceGet = get_device;
    drv->cuDeviceGetName = get_name;
    drv->cuDeviceGetAttribute = get_attribute;
    drv->cuDevicePrimaryCtxRetain = retain;
    drv->cuDevicePrimaryCtxRelease = release;
    drv->cuCtxSetCurrent = set_current;
    drv->cuCtxSynchronize = synchronize;
    drv->cuMemAlloc = mem_alloc;
    drv->cuMemGetInfo = mem_get_info;
    drv->cuMemFree = mem_free;
    drv->cuMemAllocHost = alloc_host;
    drv->cuMemFreeHost = free_host;
    drv->cuMemcpyHtoD = to_device;
    drv->cuMemcpyDtoH = to_host;
    drv->cuMemcpyHtoDAsync = to_device_async;
    drv->cuMemcpyDtoHAsync = to_host_async;
    drv->cuMemsetD32Async = set_words;
    drv->cuStreamCreate = stream_create;
    drv->cuStreamDestroy = stream_destroy;
    drv->cuStreamSynchronize = stream_synchronize;
    drv->cuStreamWaitEvent = wait_event;
    drv->cuEventCreate = event_create;
    drv->cuEventDestroy = event_destroy;
    drv->cuEventRecord = event_record;
    drv->cuLaunchKernel = launch_kernel;
    drv->cuModuleLoadData = module_load;
    drv->cuModuleUnload = module_unload;
    drv->cuModuleGetFunction = get_function;
}
