/*
 * context.c - the contexts, one a device, and the calling thread's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/context.h"

struct CUctx_st contexts[SOFT_MAX_DEVICES];

CUresult ctx_current(CUcontext *ctx_p)
{
    CUcontext ctx = thread_self()->ctx;

    if (ctx == NULL || ctx->retained == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ctx_p = ctx;
    return ctx->sticky;
}
