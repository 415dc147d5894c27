/*
 * entries.c - the exported driver entry points, and how they are looked up.
 *
 * Each entry point takes the lock and counts the call.  If SOFTCUDA_FAIL asks
 * for a failure, the call fails before anything else happens.  The work itself
 * is done in the file that owns the subject.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/batch.h"
#include "softcuda/api/capture.h"
#include "softcuda/api/control.h"
#include "softcuda/api/device.h"
#include "softcuda/api/event.h"
#include "softcuda/api/exec.h"
#include "softcuda/api/graph.h"
#include "softcuda/api/ipc.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/mapping.h"
#include "softcuda/api/memops.h"
#include "softcuda/api/memory.h"
#include "softcuda/api/module.h"
#include "softcuda/api/process.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/peer.h"
#include "softcuda/engine/soft.h"
#include "softcuda/softcuda.h"

#include <string.h>

#define DRV_ENTRY(name, version, signature) SOFT_API CUresult name signature;
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) \
    SOFT_API CUresult symbol signature;
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED

/* Declared as the driver has them, for programs that use dlsym. */
SOFT_API CUresult cuGetProcAddress(const char *name, void **entry_p,
                                   int version, uint64_t flags);
SOFT_API CUresult cuGetProcAddress_v2(const char *name, void **entry_p,
                                      int version, uint64_t flags,
                                      int *status_p);

#define ENTRY(name, parameters, call) \
    CUresult name parameters \
    { \
        CUresult code = soft_enter(E_##name); \
        return code != CUDA_SUCCESS ? code : soft_leave(call); \
    }

ENTRY(cuInit, (unsigned int flags), dev_init(flags))
ENTRY(cuDriverGetVersion, (int *p), dev_version(p))
ENTRY(cuGetErrorName, (CUresult e, const char **p), dev_error_name(e, p))
ENTRY(cuGetErrorString, (CUresult e, const char **p), dev_error_text(e, p))
ENTRY(cuDeviceGet, (CUdevice * p, int ordinal), dev_get(p, ordinal))
ENTRY(cuDeviceGetCount, (int *p), dev_count(p))
ENTRY(cuDeviceGetName, (char *name, int bytes, CUdevice device),
      dev_name(name, bytes, device))
ENTRY(cuDeviceGetAttribute, (int *p, CUdevice_attribute what, CUdevice device),
      dev_attribute(p, what, device))
ENTRY(cuDevicePrimaryCtxRetain, (CUcontext * p, CUdevice device),
      ctx_retain(p, device))
ENTRY(cuDevicePrimaryCtxRelease, (CUdevice device), ctx_release(device))
ENTRY(cuCtxGetCurrent, (CUcontext * p), ctx_get(p))
ENTRY(cuCtxSetCurrent, (CUcontext ctx), ctx_set(ctx))
ENTRY(cuCtxGetDevice, (CUdevice * p), ctx_device(p))
ENTRY(cuCtxSynchronize, (void), ctx_sync())
ENTRY(cuCtxGetStreamPriorityRange, (int *least_p, int *greatest_p),
      ctx_priorities(least_p, greatest_p))

ENTRY(cuMemGetInfo, (size_t * free_p, size_t *total_p),
      mem_info(free_p, total_p))
ENTRY(cuMemAlloc, (CUdeviceptr * p, size_t bytes), mem_alloc(p, bytes))
ENTRY(cuMemFree, (CUdeviceptr address), mem_free(address))
ENTRY(cuMemAllocHost, (void **p, size_t bytes), mem_alloc_host(p, bytes))
ENTRY(cuMemFreeHost, (void *address), mem_free_host(address))
ENTRY(cuMemcpyHtoD, (CUdeviceptr dst, const void *src, size_t bytes),
      mem_to_device(dst, src, bytes))
ENTRY(cuMemcpyDtoH, (void *dst, CUdeviceptr src, size_t bytes),
      mem_to_host(dst, src, bytes))
ENTRY(cuMemcpyHtoDAsync,
      (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),
      mem_to_device_async(dst, src, bytes, stream))
ENTRY(cuMemcpyDtoHAsync,
      (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),
      mem_to_host_async(dst, src, bytes, stream))
ENTRY(cuMemcpyDtoDAsync,
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
      mem_copy_async(dst, src, bytes, stream))
ENTRY(cuMemsetD8Async,
      (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream),
      mem_set(dst, value, 1, count, stream))
ENTRY(cuMemsetD32Async,
      (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream),
      mem_set(dst, value, 4, count, stream))

ENTRY(cuMemGetAllocationGranularity,
      (size_t * p, const CUmemAllocationProp *prop,
       CUmemAllocationGranularity_flags option),
      vmm_granularity(p, prop, option))
ENTRY(cuMemAddressReserve,
      (CUdeviceptr * p, size_t bytes, size_t alignment, CUdeviceptr wish,
       unsigned long long flags),
      vmm_reserve(p, bytes, alignment, wish, flags))
ENTRY(cuMemAddressFree, (CUdeviceptr address, size_t bytes),
      vmm_unreserve(address, bytes))
ENTRY(cuMemCreate,
      (CUmemGenericAllocationHandle * p, size_t bytes,
       const CUmemAllocationProp *prop, unsigned long long flags),
      vmm_create(p, bytes, prop, flags))
ENTRY(cuMemRelease, (CUmemGenericAllocationHandle handle),
      vmm_release(handle))
ENTRY(cuMemExportToShareableHandle,
      (void *p, CUmemGenericAllocationHandle handle,
       CUmemAllocationHandleType type, unsigned long long flags),
      vmm_export(p, handle, type, flags))
ENTRY(cuMemImportFromShareableHandle,
      (CUmemGenericAllocationHandle * p, void *shared,
       CUmemAllocationHandleType type),
      vmm_import(p, shared, type))
ENTRY(cuMemMap,
      (CUdeviceptr address, size_t bytes, size_t offset,
       CUmemGenericAllocationHandle handle, unsigned long long flags),
      vmm_map(address, bytes, offset, handle, flags))
ENTRY(cuMemUnmap, (CUdeviceptr address, size_t bytes),
      vmm_unmap(address, bytes))
ENTRY(cuMemSetAccess,
      (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
       size_t count),
      vmm_access(address, bytes, desc, count))

ENTRY(cuDeviceCanAccessPeer, (int *p, CUdevice device, CUdevice peer),
      peer_can(p, device, peer))
ENTRY(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags),
      peer_enable(peer, flags))
ENTRY(cuCtxDisablePeerAccess, (CUcontext peer), peer_disable(peer))
ENTRY(cuMemcpyAsync,
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
      mem_any_async(dst, src, bytes, stream))
ENTRY(cuMemcpyPeerAsync,
      (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
       size_t bytes, CUstream stream),
      mem_peer_async(dst, dst_ctx, src, src_ctx, bytes, stream))

ENTRY(cuMemGetAddressRange,
      (CUdeviceptr * base_p, size_t *bytes_p, CUdeviceptr address),
      mem_range(base_p, bytes_p, address))
ENTRY(cuIpcGetMemHandle, (CUipcMemHandle * p, CUdeviceptr address),
      ipc_get(p, address))
ENTRY(cuIpcOpenMemHandle,
      (CUdeviceptr * p, CUipcMemHandle handle, unsigned int flags),
      ipc_open(p, handle, flags))
ENTRY(cuIpcCloseMemHandle, (CUdeviceptr address), ipc_close(address))

ENTRY(cuStreamCreate, (CUstream * p, unsigned int flags),
      strm_create(p, flags, 0))
ENTRY(cuStreamCreateWithPriority,
      (CUstream * p, unsigned int flags, int priority),
      strm_create(p, flags, priority))
ENTRY(cuStreamDestroy, (CUstream stream), strm_destroy(stream))
ENTRY(cuStreamSynchronize, (CUstream stream), strm_sync(stream))
ENTRY(cuStreamQuery, (CUstream stream), strm_query(stream))
ENTRY(cuStreamGetPriority, (CUstream stream, int *p), strm_priority(stream, p))
ENTRY(cuStreamGetCtx, (CUstream stream, CUcontext *p), strm_ctx(stream, p))
ENTRY(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
      strm_wait(stream, event, flags))
ENTRY(cuEventCreate, (CUevent * p, unsigned int flags), ev_create(p, flags))
ENTRY(cuEventDestroy, (CUevent event), ev_destroy(event))
ENTRY(cuEventRecord, (CUevent event, CUstream stream),
      ev_record(event, stream, CU_EVENT_RECORD_DEFAULT))
ENTRY(cuEventRecordWithFlags,
      (CUevent event, CUstream stream, unsigned int flags),
      ev_record(event, stream, flags))
ENTRY(cuEventQuery, (CUevent event), ev_query(event))
ENTRY(cuEventSynchronize, (CUevent event), ev_sync(event))
ENTRY(cuEventElapsedTime, (float *p, CUevent start, CUevent end),
      ev_elapsed(p, start, end))
ENTRY(cuStreamWaitValue32,
      (CUstream stream, CUdeviceptr address, uint32_t value,
       unsigned int flags),
      strm_wait_value(stream, address, value, 4, flags))
ENTRY(cuStreamWriteValue32,
      (CUstream stream, CUdeviceptr address, uint32_t value,
       unsigned int flags),
      strm_write_value(stream, address, value, 4, flags))
ENTRY(cuStreamWaitValue64,
      (CUstream stream, CUdeviceptr address, uint64_t value,
       unsigned int flags),
      strm_wait_value(stream, address, value, 8, flags))
ENTRY(cuStreamWriteValue64,
      (CUstream stream, CUdeviceptr address, uint64_t value,
       unsigned int flags),
      strm_write_value(stream, address, value, 8, flags))
ENTRY(cuStreamBatchMemOp,
      (CUstream stream, unsigned int count,
       CUstreamBatchMemOpParams *operations, unsigned int flags),
      strm_words(stream, count, operations, flags))
ENTRY(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user),
      strm_host(stream, fn, user))

ENTRY(cuModuleLoadData, (CUmodule * p, const void *image), mod_load(p, image))
ENTRY(cuModuleUnload, (CUmodule module), mod_unload(module))
ENTRY(cuModuleGetFunction, (CUfunction * p, CUmodule module, const char *name),
      mod_function(p, module, name))
ENTRY(cuLaunchKernel,
      (CUfunction function, unsigned int grid_x, unsigned int grid_y,
       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
       unsigned int block_z, unsigned int shared_bytes, CUstream stream,
       void **params, void **extra),
      krn_launch(function,
                 &(softcuda_launch){ { grid_x, grid_y, grid_z },
                                     { block_x, block_y, block_z },
                                     shared_bytes },
                 stream, params, extra))

ENTRY(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode),
      cap_exchange(mode))
ENTRY(cuStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode),
      cap_begin(stream, mode))
ENTRY(cuStreamEndCapture, (CUstream stream, CUgraph *p), cap_end(stream, p))
ENTRY(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *p),
      cap_status(stream, p))
ENTRY(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count_p),
      grf_nodes(graph, nodes, count_p))
ENTRY(cuGraphInstantiateWithFlags,
      (CUgraphExec * p, CUgraph graph, unsigned long long flags),
      grf_instantiate(p, graph, flags))
ENTRY(cuGraphUpload, (CUgraphExec exec, CUstream stream),
      grf_upload(exec, stream))
ENTRY(cuGraphLaunch, (CUgraphExec exec, CUstream stream),
      grf_launch(exec, stream))
ENTRY(cuGraphDestroy, (CUgraph graph), grf_destroy(graph))
ENTRY(cuGraphExecDestroy, (CUgraphExec exec), grf_exec_destroy(exec))
ENTRY(cuMemcpyBatchAsync,
      (const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
       size_t count, const struct copy_attributes *attributes,
       const size_t *indexes, size_t n_attributes, size_t *fail_p,
       CUstream stream),
      mem_batch(&(struct batch){ dsts, srcs, sizes, count, attributes, indexes,
                                 n_attributes },
                fail_p, stream))
ENTRY(cuMemcpyBatchAsync_v2,
      (const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
       size_t count, const struct copy_attributes *attributes,
       const size_t *indexes, size_t n_attributes, CUstream stream),
      mem_batch(&(struct batch){ dsts, srcs, sizes, count, attributes, indexes,
                                 n_attributes },
                NULL, stream))

ENTRY(cuCheckpointProcessGetState, (int pid, enum process_state *p),
      process_get_state(pid, p))
ENTRY(cuCheckpointProcessLock, (int pid, const struct checkpoint_args *args),
      process_lock(pid, args))
ENTRY(cuCheckpointProcessCheckpoint,
      (int pid, const struct checkpoint_args *args),
      process_change(pid, args, PROCESS_LOCKED, PROCESS_CHECKPOINTED))
ENTRY(cuCheckpointProcessRestore,
      (int pid, const struct checkpoint_args *args),
      process_change(pid, args, PROCESS_CHECKPOINTED, PROCESS_LOCKED))
ENTRY(cuCheckpointProcessUnlock, (int pid, const struct checkpoint_args *args),
      process_change(pid, args, PROCESS_LOCKED, PROCESS_RUNNING))

/* A function pointer as the driver hands it out. */
typedef CUresult (*any_entry)(void);

static const any_entry entry_addresses[] = {
#define DRV_ENTRY(name, version, signature) (any_entry)(void (*)(void)) name,
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) \
    (any_entry)(void (*)(void)) symbol,
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED
};

/* The names for cuGetProcAddress. */
static const char *const asked_names[] = {
#define DRV_ENTRY(name, version, signature) #name,
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) name,
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED
};

enum {
    SYMBOL_FOUND = 0,
    SYMBOL_NOT_FOUND = 1,
    SYMBOL_TOO_NEW = 2
};
enum {
    FLAG_LEGACY = 1
}; /* the other flag asks for per-thread entries */

CUresult cuGetProcAddress_v2(const char *name, void **entry_p, int version,
                             uint64_t flags, int *status_p)
{
    int status = SYMBOL_NOT_FOUND;

    if (name == NULL || entry_p == NULL || (flags & ~(uint64_t)FLAG_LEGACY)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *entry_p = NULL;
    for (int i = 0; i < N_ENTRIES; i++) {
        if (strcmp(name, asked_names[i]) != 0) {
            continue;
        }
        if (version >= entry_versions[i]) {
            memcpy(entry_p, &entry_addresses[i], sizeof(*entry_p));
            status = SYMBOL_FOUND;
        } else if (status == SYMBOL_NOT_FOUND) {
            status = SYMBOL_TOO_NEW;
        }
    }

    if (status_p != NULL) {
        *status_p = status;
    }
    return status == SYMBOL_FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **entry_p, int version,
                          uint64_t flags)
{
    return cuGetProcAddress_v2(name, entry_p, version, flags, NULL);
}
