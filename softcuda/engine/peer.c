/*
 * peer.c - which device's kernels reach which other device's memory.
 *
 * A context asks for each context that its kernels want to reach, and only for
 * its own direction.  A handle that is opened reaches its allocation without
 * asking.  Copies between devices need no permission, because a driver takes
 * them through the host if necessary.  Mapped memory is reached by the devices
 * that were given access to it, and by no other, in copies too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/peer.h"

#include "softcuda/engine/context.h"
#include "softcuda/engine/soft.h"

static bool reaches[SOFT_MAX_DEVICES][SOFT_MAX_DEVICES];

bool peer_reaches(CUcontext from, const struct alloc *to)
{
    return from == to->ctx || from == NULL ||
           (to->backing == NULL && reaches[from->device][to->ctx->device]) ||
           (to->shared >> from->device & 1) != 0;
}

void peer_forget(CUcontext ctx)
{
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        reaches[ctx->device][i] = reaches[i][ctx->device] = false;
    }
}

CUresult peer_can(int *can_p, CUdevice device, CUdevice peer)
{
    if (can_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(device) || !is_device(peer)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *can_p = device != peer;
    return CUDA_SUCCESS;
}

/* Finds the calling thread's context and a live one of another device. */
static CUresult pair(CUcontext peer, CUcontext *ctx_p)
{
    CUresult code = ctx_current(ctx_p);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    return ctx_is_live(peer) && peer != *ctx_p ? CUDA_SUCCESS
                                               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult peer_enable(CUcontext peer, unsigned int flags)
{
    CUcontext ctx;
    CUresult code;

    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    code = pair(peer, &ctx);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (reaches[ctx->device][peer->device]) {
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    reaches[ctx->device][peer->device] = true;
    return CUDA_SUCCESS;
}

CUresult peer_disable(CUcontext peer)
{
    CUcontext ctx;
    CUresult code = pair(peer, &ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (!reaches[ctx->device][peer->device]) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    reaches[ctx->device][peer->device] = false;
    return CUDA_SUCCESS;
}
