/*
 * device.c - versions, errors, devices and contexts.
 *
 * Each device has one context, the primary one.  Releasing it for the last
 * time does not free what is in it, so that what a program leaked stays
 * counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/device.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/issue.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/peer.h"
#include "softcuda/engine/soft.h"

#include <stdio.h>

#define SOFT_VERSION 13000 /* the CUDA version that the device speaks */

static const struct error_row {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text) \
    { \
        name, #name, text \
    }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
          "peer access is not supported between these two devices"),
    ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE,
          "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS,
          "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
          "too many resources requested for launch"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
          "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
          "peer access has not been enabled"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
          "operation would result in a merge of separate capture sequences"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
          "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing "
          "blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a "
          "capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from "
          "another thread"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

static const struct attribute_row {
    int what, value;
} attributes[] = {
    { 1, 1024 }, /* threads per block */
    { 2, 1024 }, /* block x, y, z */
    { 3, 1024 },
    { 4, 64 },
    { 5, 2147483647 }, /* grid x, y, z */
    { 6, 65535 },
    { 7, 65535 },
    { 8, 49152 }, /* shared bytes per block */
    { 10, 32 },   /* warp */
    { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132 },
    { 40, 3 }, /* copy engines */
    { 41, 1 }, /* unified addressing */
    { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
    { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
    { 78, 1 },      /* stream priorities */
    { 97, 232448 }, /* shared bytes per block, on request */
};

/* Of which a setting says the value. */
static const int *setting_of(CUdevice_attribute what)
{
    static const int values[] = { 0, 1 };

    return what == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
               ? &values[soft.set.mapping]
               : NULL;
}

CUresult dev_init(unsigned int flags)
{
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (soft.set.devices == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        contexts[i].device = i;
    }
    soft.inited = true;
    return CUDA_SUCCESS;
}

CUresult dev_version(int *version_p)
{
    if (version_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version_p = SOFT_VERSION;
    return CUDA_SUCCESS;
}

static const struct error_row *find_error(CUresult code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            return &errors[i];
        }
    }
    return NULL;
}

CUresult dev_error_name(CUresult code, const char **name_p)
{
    const struct error_row *row = find_error(code);

    if (name_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name_p = row != NULL ? row->name : NULL;
    return row != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult dev_error_text(CUresult code, const char **text_p)
{
    const struct error_row *row = find_error(code);

    if (text_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text_p = row != NULL ? row->text : NULL;
    return row != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult dev_get(CUdevice *device_p, int ordinal)
{
    if (device_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device_p = ordinal;
    return CUDA_SUCCESS;
}

CUresult dev_count(int *count_p)
{
    if (count_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count_p = (int)soft.set.devices;
    return CUDA_SUCCESS;
}

CUresult dev_name(char *name, int bytes, CUdevice device)
{
    if (name == NULL || bytes <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(name, (size_t)bytes, "graphhooks software device");
    return CUDA_SUCCESS;
}

CUresult dev_attribute(int *value_p, CUdevice_attribute what, CUdevice device)
{
    if (value_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (setting_of(what) != NULL) {
        *value_p = *setting_of(what);
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        if (attributes[i].what == (int)what) {
            *value_p = attributes[i].value;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult ctx_retain(CUcontext *ctx_p, CUdevice device)
{
    CUcontext ctx;

    if (ctx_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    ctx = &contexts[device];
    if (stream_legacy(ctx) == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->retained++;
    *ctx_p = ctx;
    return CUDA_SUCCESS;
}

CUresult ctx_release(CUdevice device)
{
    CUcontext ctx;

    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    ctx = &contexts[device];
    if (ctx->retained == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--ctx->retained == 0) {
        stream_run_ctx(ctx);
        peer_forget(ctx);
        ctx->sticky = CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

CUresult ctx_get(CUcontext *ctx_p)
{
    if (ctx_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ctx_p = thread_self()->ctx;
    return CUDA_SUCCESS;
}

CUresult ctx_set(CUcontext ctx)
{
    if (ctx != NULL && !ctx_is_live(ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    thread_self()->ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult ctx_device(CUdevice *device_p)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code == CUDA_ERROR_INVALID_CONTEXT) {
        return code;
    }
    if (device_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device_p = ctx->device;
    return CUDA_SUCCESS;
}

CUresult ctx_sync(void)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    code = capture_forbids_ctx(ctx);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    stream_run_ctx(ctx);
    return ctx->sticky;
}

CUresult ctx_priorities(int *least_p, int *greatest_p)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (least_p != NULL) {
        *least_p = 0;
    }
    if (greatest_p != NULL) {
        *greatest_p = -5;
    }
    return CUDA_SUCCESS;
}
