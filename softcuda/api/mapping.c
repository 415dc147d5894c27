/*
 * mapping.c - reserved addresses, and device memory that is mapped to them.
 *
 * A mapping is an allocation whose base was chosen before: it is in the table
 * of allocations as long as it is mapped.  Memory that is mapped anew holds
 * other bytes than before, so that whoever counts on the old ones is found.
 *
 * Bytes that one operation uses lie in one mapping: a driver would let them lie
 * in several that are side by side.
 *
 * Unmapping waits for nothing, as with a driver: work that was issued before
 * and runs after it finds no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/mapping.h"

#include "softcuda/api/capture.h"
#include "softcuda/check/labels.h"
#include "softcuda/check/race.h"
#include "softcuda/check/unwritten.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/flags.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/ranges.h"
#include "softcuda/engine/soft.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE ((size_t)2 << 20)
#define PAGE ((size_t)4096)

/* Device memory that has no address of its own. */
struct backing {
    struct backing *next;
    uint64_t handle; /* 0: released, and mapped still */
    size_t bytes;
    CUcontext ctx;
    bool mapped;
    bool imported;           /* another process has made it */
    struct outside *outside; /* NULL: it is for this process alone */
};

static struct backing *all;
static uint64_t n_handles;

static struct backing *find(CUmemGenericAllocationHandle handle)
{
    struct backing *b = all;

    while (b != NULL && b->handle != handle) {
        b = b->next;
    }
    return handle != 0 ? b : NULL;
}

/* Frees memory that has neither a handle nor a mapping. */
static void drop_unused(struct backing *backing)
{
    struct backing **at = &all;

    if (backing->handle != 0 || backing->mapped) {
        return;
    }
    while (*at != backing) {
        at = &(*at)->next;
    }
    *at = backing->next;
    if (!backing->imported) {
        backing->ctx->used -= backing->bytes;
    }
    outside_forget(backing->outside);
    free(backing);
}

/* For calls that may stop the world, which a capture may forbid. */
static CUresult enter(void)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code == CUDA_SUCCESS && !soft.set.mapping) {
        code = CUDA_ERROR_NOT_SUPPORTED;
    }
    return code != CUDA_SUCCESS ? code : capture_forbids_unsafe();
}

/* The context of the device on which memory is asked for; NULL: the request is
 * of a kind that there is not. */
static CUcontext context_of(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !is_device(prop->location.id)) {
        return NULL;
    }
    return &contexts[prop->location.id];
}

CUresult vmm_granularity(size_t *bytes_p, const CUmemAllocationProp *prop,
                         CUmemAllocationGranularity_flags option)
{
    if (!soft.set.mapping) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes_p == NULL || context_of(prop) == NULL ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *bytes_p = GRANULE;
    return CUDA_SUCCESS;
}

CUresult vmm_reserve(CUdeviceptr *address_p, size_t bytes, size_t alignment,
                     CUdeviceptr wish, unsigned long long flags)
{
    CUresult code = enter();
    uintptr_t base;
    void *room;

    (void)wish; /* a hint */
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (address_p == NULL || bytes == 0 || bytes % PAGE != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0 || alignment > GRANULE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    room = mmap(NULL, bytes + GRANULE, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    base = ((uintptr_t)room + GRANULE - 1) & ~(uintptr_t)(GRANULE - 1);
    if (base != (uintptr_t)room) {
        munmap(room, base - (uintptr_t)room);
    }
    if (base + bytes != (uintptr_t)room + bytes + GRANULE) {
        munmap((void *)(base + bytes), (uintptr_t)room + GRANULE - base);
    }
    if (!range_add(base, bytes)) {
        munmap((void *)base, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address_p = base;
    return CUDA_SUCCESS;
}

/* The mapping that begins at or after the address, and before the end. */
static struct alloc *next_mapping(uintptr_t address, uintptr_t end)
{
    struct alloc *alloc;

    for (size_t i = 0; (alloc = alloc_nth(i)) != NULL; i++) {
        if (alloc->base >= address) {
            return alloc->base < end ? alloc : NULL;
        }
    }
    return NULL;
}

CUresult vmm_unreserve(CUdeviceptr address, size_t bytes)
{
    struct range *range = range_find((uintptr_t)address);
    CUresult code = enter();

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (range == NULL || range->base != address || range->bytes != bytes ||
        next_mapping(range->base, range->base + bytes) != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    range_remove(range);
    munmap((void *)(uintptr_t)address, bytes);
    return CUDA_SUCCESS;
}

CUresult vmm_create(CUmemGenericAllocationHandle *handle_p, size_t bytes,
                    const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult code = enter();
    const CUcontext ctx = context_of(prop);
    struct outside *outside = NULL;
    struct backing *backing;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (handle_p == NULL || ctx == NULL || bytes == 0 || bytes % GRANULE != 0 ||
        flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((prop->requestedHandleTypes &
         ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    backing = ctx->used > soft.set.memory || bytes > soft.set.memory - ctx->used
                  ? NULL
                  : calloc(1, sizeof(*backing));
    if (backing != NULL && prop->requestedHandleTypes != 0) {
        outside = outside_make(bytes);
    }
    if (backing == NULL ||
        (outside == NULL && prop->requestedHandleTypes != 0)) {
        free(backing);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *backing = (struct backing){ .next = all,
                                 .handle = ++n_handles,
                                 .bytes = bytes,
                                 .ctx = ctx,
                                 .outside = outside };
    all = backing;
    ctx->used += bytes;
    *handle_p = backing->handle;
    return CUDA_SUCCESS;
}

/* Its memory may be there longer than here: as long as another process has it
 * mapped. */
CUresult vmm_export(void *shared_p, CUmemGenericAllocationHandle handle,
                    CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct backing *backing = find(handle);
    CUresult code = enter();
    int file;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (shared_p == NULL || backing == NULL || backing->outside == NULL ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    file = outside_export(backing->outside);
    if (file < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(shared_p, &file, sizeof(file));
    return CUDA_SUCCESS;
}

CUresult vmm_import(CUmemGenericAllocationHandle *handle_p, void *shared,
                    CUmemAllocationHandleType type)
{
    struct backing *backing;
    size_t bytes = 0;
    CUcontext ctx;
    CUresult code = enter();

    if (code == CUDA_SUCCESS) {
        code = ctx_current(&ctx);
    }
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (handle_p == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    backing = calloc(1, sizeof(*backing));
    if (backing == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    backing->outside = outside_import((int)(intptr_t)shared, &bytes);
    if (backing->outside == NULL) {
        free(backing);
        return CUDA_ERROR_INVALID_VALUE;
    }
    backing->next = all;
    backing->handle = ++n_handles;
    backing->bytes = bytes;
    backing->ctx = ctx;
    backing->imported = true;
    all = backing;
    *handle_p = backing->handle;
    return CUDA_SUCCESS;
}

CUresult vmm_release(CUmemGenericAllocationHandle handle)
{
    struct backing *backing = find(handle);
    CUresult code = enter();

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (backing == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    backing->handle = 0;
    drop_unused(backing);
    return CUDA_SUCCESS;
}

/* Gives the addresses memory of the program's. */
static bool open_pages(uintptr_t address, size_t bytes,
                       const struct backing *backing)
{
    return backing->outside != NULL
               ? outside_map(backing->outside, (void *)address, bytes)
               : mprotect((void *)address, bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Takes it back, so that the program too finds nothing there. */
static void close_pages(uintptr_t address, size_t bytes)
{
    (void)mmap((void *)address, bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult vmm_map(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const struct range *range = range_find((uintptr_t)address);
    struct backing *backing = find(handle);
    CUresult code = enter();
    struct alloc *alloc;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (range == NULL || address % GRANULE != 0 ||
        bytes > range->bytes - (address - range->base) || offset != 0 ||
        flags != 0 || backing == NULL || backing->bytes != bytes ||
        backing->mapped || next_mapping(address, address + bytes) != NULL ||
        alloc_find((void *)(uintptr_t)address, 0) != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!open_pages(address, bytes, backing)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc =
        alloc_add((void *)(uintptr_t)address, bytes, SIDE_DEVICE, backing->ctx);
    if (alloc == NULL) {
        close_pages(address, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!backing->imported) {
        holes_all(&alloc->holes, bytes);
        memset((void *)(uintptr_t)address,
               0x30 + (int)((soft.set.seed + alloc->number) & 0xF), bytes);
    }
    alloc->backing = backing;
    alloc->outside = backing->outside;
    alloc->no_access = true;
    backing->mapped = true;
    return CUDA_SUCCESS;
}

static void unmap(struct alloc *alloc)
{
    struct backing *backing = alloc->backing;

    close_pages(alloc->base, alloc->bytes);
    shadow_clear(&alloc->shadow);
    holes_clear(&alloc->holes);
    labels_clear(&alloc->labels);
    flags_clear(&alloc->flags);
    alloc_remove(alloc);
    backing->mapped = false;
    drop_unused(backing);
}

/* Whether mappings fill the range, from its first byte to its last. */
static bool is_filled(uintptr_t address, size_t bytes)
{
    const uintptr_t end = address + bytes;

    while (address < end) {
        const struct alloc *alloc = next_mapping(address, end);

        if (alloc == NULL || alloc->base != address || alloc->backing == NULL ||
            alloc->bytes > end - address) {
            return false;
        }
        address += alloc->bytes;
    }
    return bytes != 0;
}

CUresult vmm_unmap(CUdeviceptr address, size_t bytes)
{
    CUresult code = enter();
    struct alloc *alloc;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (!is_filled((uintptr_t)address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    while ((alloc = next_mapping((uintptr_t)address,
                                 (uintptr_t)address + bytes)) != NULL) {
        unmap(alloc);
    }
    return CUDA_SUCCESS;
}

static bool is_sound(const CUmemAccessDesc *desc)
{
    return desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           is_device(desc->location.id) &&
           desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult vmm_access(CUdeviceptr address, size_t bytes,
                    const CUmemAccessDesc *desc, size_t count)
{
    const uintptr_t end = (uintptr_t)address + bytes;
    uintptr_t at = (uintptr_t)address;
    CUresult code = enter();

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (desc == NULL || count == 0 || !is_filled(at, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_sound(&desc[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (struct alloc *a; (a = next_mapping(at, end)) != NULL;
         at = a->base + a->bytes) {
        for (size_t i = 0; i < count; i++) {
            if (desc[i].location.id == a->ctx->device) {
                a->no_access = false;
            } else {
                a->shared |= 1u << desc[i].location.id;
            }
        }
    }
    return CUDA_SUCCESS;
}
