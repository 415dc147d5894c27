/*
 * ipc.c - device memory that other processes reach.
 *
 * A handle of another process is opened as outside.c has it.  With PROCESSES,
 * the threads of one device stand for a process, too.  They all share the
 * program's memory, so an address is valid everywhere, and only who opened what
 * has to be kept.  As a driver does, this refuses a handle in the process that
 * it comes from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/ipc.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/memory.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/soft.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAGIC = 0x736f6674
};

/* What a handle holds. */
struct token {
    uint32_t magic;
    int32_t process;
    uint64_t base, number;
    bool named; /* other processes can open it */
    struct outside_name name;
};
_Static_assert(sizeof(struct token) <= sizeof(CUipcMemHandle), "it fits");

struct opened {
    struct opened *next;
    CUdeviceptr base;
    int device;
    uint64_t times;
    int32_t process; /* whose it is */
    uint64_t number; /* its allocation's, there */
};

static struct opened *all;

static CUresult enter(CUcontext *ctx_p)
{
    CUresult code = ctx_current(ctx_p);

    return code != CUDA_SUCCESS ? code : capture_forbids_unsafe();
}

static struct alloc *device_memory(CUdeviceptr address)
{
    struct alloc *alloc = alloc_find((void *)(uintptr_t)address, 0);

    return alloc != NULL && alloc->side == SIDE_DEVICE && alloc->backing == NULL
               ? alloc
               : NULL;
}

CUresult mem_range(CUdeviceptr *base_p, size_t *bytes_p, CUdeviceptr address)
{
    const struct alloc *alloc = alloc_find((void *)(uintptr_t)address, 0);
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (alloc == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base_p != NULL) {
        *base_p = alloc->base;
    }
    if (bytes_p != NULL) {
        *bytes_p = alloc->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult ipc_get(CUipcMemHandle *handle_p, CUdeviceptr address)
{
    struct alloc *alloc = device_memory(address);
    struct token token;
    CUcontext ctx;
    CUresult code = enter(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (handle_p == NULL || alloc == NULL || alloc->ctx != ctx ||
        outside_is_foreign(alloc)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(&token, 0, sizeof(token));
    token.magic = MAGIC;
    token.process = getpid();
    token.base = alloc->base;
    token.number = alloc->number;
    token.named = outside_name(alloc, &token.name);
    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &token, sizeof(token));
    return CUDA_SUCCESS;
}

static struct opened *find(CUdeviceptr base, int device)
{
    struct opened *o = all;

    while (o != NULL && (o->base != base || o->device != device)) {
        o = o->next;
    }
    return o;
}

static struct opened *add(CUdeviceptr base, int device,
                          const struct token *token)
{
    struct opened *o = calloc(1, sizeof(*o));

    if (o != NULL) {
        o->base = base;
        o->device = device;
        o->process = token->process;
        o->number = token->number;
        o->next = all;
        all = o;
    }
    return o;
}

/* ---- of another process -------------------------------------------------- */

static struct opened *find_foreign(const struct token *token, int device)
{
    struct opened *o = all;

    while (o != NULL && (o->process != token->process ||
                         o->number != token->number || o->device != device)) {
        o = o->next;
    }
    return o;
}

static CUresult map_foreign(const struct token *token, CUcontext ctx,
                            struct opened **o_p)
{
    void *base = NULL;
    struct outside *outside =
        token->named ? outside_open(&token->name, &base) : NULL;
    struct alloc *alloc;

    if (outside == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    alloc = alloc_add(base, token->name.bytes, SIDE_DEVICE, ctx);
    *o_p = alloc != NULL ? add((uintptr_t)base, ctx->device, token) : NULL;
    if (*o_p == NULL) {
        if (alloc != NULL) {
            alloc_remove(alloc);
        }
        outside_close(outside, base, token->name.bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->outside = outside;
    return CUDA_SUCCESS;
}

static CUresult open_foreign(CUdeviceptr *address_p, const struct token *token,
                             CUcontext ctx)
{
    struct opened *o = find_foreign(token, ctx->device);
    CUresult code = o == NULL ? map_foreign(token, ctx, &o) : CUDA_SUCCESS;

    if (code == CUDA_SUCCESS) {
        o->times++;
        *address_p = o->base;
    }
    return code;
}

static void close_foreign(struct alloc *alloc)
{
    struct outside *outside = alloc->outside;
    void *base = (void *)alloc->base;
    const size_t bytes = alloc->bytes;

    mem_forget(alloc);
    outside_close(outside, base, bytes);
}

/* ---- all ----------------------------------------------------------------- */

/* Opens a handle.  Opening it again counts, so it must be closed as often. */
CUresult ipc_open(CUdeviceptr *address_p, CUipcMemHandle handle,
                  unsigned int flags)
{
    struct token token;
    struct alloc *alloc;
    struct opened *o;
    CUcontext ctx;
    CUresult code = enter(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    memcpy(&token, &handle, sizeof(token));
    if (address_p != NULL && token.magic == MAGIC &&
        flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS &&
        token.process != getpid()) {
        return open_foreign(address_p, &token, ctx);
    }
    alloc = token.magic == MAGIC ? device_memory(token.base) : NULL;
    if (address_p == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        alloc == NULL || alloc->number != token.number) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!soft.set.processes || alloc->ctx == ctx) {
        return CUDA_ERROR_INVALID_CONTEXT; /* the process that it comes from */
    }
    o = find(token.base, ctx->device);
    if (o == NULL) {
        o = add(token.base, ctx->device, &token);
        if (o == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    o->times++;
    alloc->shared |= 1u << ctx->device;
    *address_p = token.base;
    return CUDA_SUCCESS;
}

CUresult ipc_close(CUdeviceptr address)
{
    CUcontext ctx;
    CUresult code = enter(&ctx);
    struct opened *o;

    if (code != CUDA_SUCCESS) {
        return code;
    }
    o = find(address, ctx->device);
    if (o == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--o->times == 0) {
        struct alloc *alloc = device_memory(address);
        struct opened **at = &all;

        if (alloc != NULL && outside_is_foreign(alloc)) {
            close_foreign(alloc);
        } else if (alloc != NULL) {
            alloc->shared &= ~(1u << ctx->device);
        }
        while (*at != o) {
            at = &(*at)->next;
        }
        *at = o->next;
        free(o);
    }
    return CUDA_SUCCESS;
}
