/*
 * context.c - the contexts, one for each device, and the calling thread's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/context.h"

struct CUctx_st contexts[SOFT_MAX_DEVICES];

bool is_device(CUdevice device)
{
    return device >= 0 && (uint64_t)device < soft.set.devices;
}

bool ctx_is_live(CUcontext ctx)
{
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        if (ctx == &contexts[i]) {
            return ctx->retained != 0;
        }
    }
    return false;
}

CUresult ctx_current(CUcontext *ctx_p)
{
    CUcontext ctx = thread_self()->ctx;

    if (ctx == NULL || ctx->retained == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ctx_p = ctx;
    return ctx->sticky;
}
