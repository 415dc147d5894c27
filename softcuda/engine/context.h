/*
 * context.h - the contexts, one for each device, and the calling thread's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CONTEXT_H
#define SOFTCUDA_CONTEXT_H

#include "driver/driver.h"
#include "softcuda/engine/soft.h"

#include <stddef.h>
#include <stdint.h>

struct vc;

struct CUctx_st {
    int device;
    uint64_t retained;
    CUresult sticky; /* what every call returns after a wild access */
    CUstream legacy;
    CUstream streams; /* all but the legacy stream */
    struct vc *gone;  /* what destroyed streams did */
    uint64_t gone_ns;
    size_t used;
};

extern struct CUctx_st contexts[SOFT_MAX_DEVICES];

bool is_device(CUdevice device);
bool ctx_is_live(CUcontext ctx);
/* The calling thread's context, if work can be issued in it. */
CUresult ctx_current(CUcontext *ctx_p);

#endif
