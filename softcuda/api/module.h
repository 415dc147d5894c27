/*
 * module.h - modules of C kernels, and launching them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_MODULE_H
#define SOFTCUDA_MODULE_H

#include "driver/driver.h"
#include "softcuda/softcuda.h"

#include <stdint.h>

struct kernel;

struct CUmod_st {
    CUcontext ctx;
    struct CUfunc_st *functions;
    uint32_t n;
};

struct CUfunc_st {
    CUcontext ctx;
    const struct kernel *kernel;
};

CUresult mod_load(CUmodule *module_p, const void *image);
CUresult mod_unload(CUmodule module);
CUresult mod_function(CUfunction *function_p, CUmodule module,
                      const char *name);
CUresult krn_launch(CUfunction function, const softcuda_launch *launch,
                    CUstream stream, void **params, void **extra);

#endif
