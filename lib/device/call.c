/*
 * call.c - what surrounds calls of the driver: the context, and the errors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

#define MODE_UNKNOWN (-1)

gh_status gh_device_fail(const struct gh_device *dev, CUresult result,
                         const char *entry, gh_error *err)
{
    const char *name = NULL, *text = NULL;

    dev->drv.cuGetErrorName(result, &name);
    dev->drv.cuGetErrorString(result, &text);
    return gh_fail(err,
                   result == CUDA_ERROR_OUT_OF_MEMORY ? GH_ERR_NO_MEMORY
                                                      : GH_ERR_DEVICE,
                   "%s: %d %s (%s)", entry, result, name ? name : "?",
                   text ? text : "unknown to this driver");
}

/* Returns the mode before, or MODE_UNKNOWN if the driver changed nothing. */
static int exchange_mode(struct gh_device *dev, int mode)
{
    CUstreamCaptureMode other = mode;

    return dev->drv.cuThreadExchangeStreamCaptureMode(&other) == CUDA_SUCCESS
               ? other
               : MODE_UNKNOWN;
}

/* Tries twice, because a call that failed has changed nothing. */
static void restore_mode(struct gh_device *dev, int mode)
{
    if (mode != MODE_UNKNOWN && exchange_mode(dev, mode) == MODE_UNKNOWN) {
        exchange_mode(dev, mode);
    }
}

struct gh_device_before gh_device_enter(struct gh_device *dev)
{
    CUcontext previous = dev->ctx;

    /* If the driver does not say what is current, the thread keeps this
     * context.  A thread without any context would be worse. */
    if (dev->drv.cuCtxGetCurrent(&previous) != CUDA_SUCCESS) {
        previous = dev->ctx;
        dev->drv.cuCtxSetCurrent(dev->ctx);
    } else if (previous != dev->ctx) {
        dev->drv.cuCtxSetCurrent(dev->ctx);
    }
    return (struct gh_device_before){
        previous, exchange_mode(dev, CU_STREAM_CAPTURE_MODE_RELAXED)
    };
}

void gh_device_leave(struct gh_device *dev, struct gh_device_before before)
{
    restore_mode(dev, before.mode);
    if (before.context != dev->ctx) {
        dev->drv.cuCtxSetCurrent(before.context);
    }
}
