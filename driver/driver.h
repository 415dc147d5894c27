/*
 * driver/driver.h - the CUDA driver API, as far as this project uses it.
 *
 * Types, values and one table of entry points, written down here so that
 * nothing needs <cuda.h> to compile.  The same table is filled from
 * libcuda.so.1 or from the software device; lib/device, the engine, the
 * benches and the tests all call the driver through it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef DRIVER_DRIVER_H
#define DRIVER_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifndef CUDA_VERSION /* <cuda.h> would have declared the same */

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef void (*CUhostFn)(void *user);
typedef struct CUipcMemHandle_st {
    char reserved[64];
} CUipcMemHandle;

/* Enumerations of the driver.  All have the size of an int. */
typedef int CUresult;
typedef int CUdevice_attribute;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUstreamBatchMemOpType;
typedef int CUmemAllocationType;
typedef int CUmemAllocationHandleType;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemAccess_flags;
typedef int CUmemLocationType;

/* Memory without an address, and who may use it where it is mapped. */
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;
} CUmemLocation;
typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

/* One of several operations on words.  Both kinds have the same layout. */
struct drv_word_op {
    CUstreamBatchMemOpType operation;
    CUdeviceptr address;
    union {
        uint32_t value;
        uint64_t value64;
    };
    unsigned int flags;
    CUdeviceptr alias; /* for the driver */
};
typedef union CUstreamBatchMemOpParams_union {
    CUstreamBatchMemOpType operation;
    struct drv_word_op waitValue, writeValue;
    uint64_t pad[6];
} CUstreamBatchMemOpParams;

enum {
#define DRV_CONST(name, value) name = value,
#include "driver/constants.def"
#undef DRV_CONST
};

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

#endif /* CUDA_VERSION */

struct driver {
    void *library; /* what dlopen returned; never closed, see driver_load() */
    /* entries newer than CUDA 11.4 may be NULL */
#define DRV_ENTRY(name, version, signature) CUresult(*name) signature;
#include "driver/entries.def"
#undef DRV_ENTRY
};

/**
 * Fill the table.
 *
 * @param      path  the shared object: "libcuda.so.1", or the software
 *                   device's.  It stays loaded for the life of the process:
 *                   graphs and callbacks may outlive the table.
 * @param[out] drv   whole on success; zeroed on failure
 * @param[out] text  on failure, one sentence: what is missing and where
 *
 * @return 0, or -1.  Does not call cuInit.
 */
int driver_load(const char *path, struct driver *drv, char *text,
                size_t text_bytes);

/**
 * An entry that a driver may lack, with the signature of that version.
 *
 * @return its address, or NULL.  Does not call cuInit.
 */
void *driver_find(const struct driver *drv, const char *name, int version);

#endif
