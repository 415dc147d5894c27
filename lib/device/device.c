/*
 * device.c - finds a driver and a device, and holds both.
 *
 * The driver library is loaded once and never unloaded (driver/load.c).  A
 * host's context is borrowed.  If there is none, the primary context of the
 * device is retained.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/beside.h"
#include "base/error.h"
#include "device/private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gh_status load_driver(const char *driver, struct gh_device *dev,
                             gh_error *err)
{
    char path[4096], text[200];
    void *symbol;

    if (strcmp(driver, "cuda") == 0) {
        snprintf(path, sizeof(path), GH_CUDA_NAME);
    } else if (strcmp(driver, "soft") == 0) {
        gh_beside_path(GH_SOFT_NAME, path, sizeof(path));
    } else {
        snprintf(path, sizeof(path), "%s", driver);
    }

    if (driver_load(path, &dev->drv, text, sizeof(text)) != 0) {
        return gh_fail(err, GH_ERR_NO_DRIVER,
                       "%.150s; set GRAPHHOOKS_DRIVER=soft for the software "
                       "device, or GRAPHHOOKS_ENABLE=0 to run without a driver",
                       text);
    }
    dev->info.soft = dlsym(dev->drv.library, "softcuda_count") != NULL;
    symbol = dlsym(dev->drv.library, "softcuda_unwritten");
    memcpy(&dev->unwritten, &symbol, sizeof(symbol));
    symbol = dlsym(dev->drv.library, "softcuda_discard");
    memcpy(&dev->discard, &symbol, sizeof(symbol));
    symbol = dlsym(dev->drv.library, "softcuda_gather");
    memcpy(&dev->gather, &symbol, sizeof(symbol));
    return GH_OK;
}

/* Finds the context to use: the host's, or else the current one, or else the
 * primary one of `ordinal`. */
static gh_status find_context(struct gh_device *dev, void *context, int ordinal,
                              gh_error *err)
{
    gh_status status;
    int count = 0;

    dev->ctx = context;
    if (dev->ctx == NULL) {
        status = gh_device_call(dev, err, cuCtxGetCurrent, (&dev->ctx));
        if (status != GH_OK || dev->ctx != NULL) {
            return status;
        }
    }
    if (dev->ctx != NULL) {
        return GH_OK;
    }

    status = gh_device_call(dev, err, cuDeviceGetCount, (&count));
    if (status != GH_OK) {
        return status;
    }
    if (ordinal < 0 || ordinal >= count) {
        return gh_fail(err, GH_ERR_NO_DRIVER,
                       "gh_session_desc.device is %d, but the driver has %d "
                       "device%s",
                       ordinal, count, count == 1 ? "" : "s");
    }
    status = gh_device_call(dev, err, cuDeviceGet, (&dev->device, ordinal));
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_call(dev, err, cuDevicePrimaryCtxRetain,
                            (&dev->ctx, dev->device));
    dev->retained = status == GH_OK;
    return status;
}

static gh_status describe(struct gh_device *dev, gh_error *err)
{
    gh_status status;

    status = gh_device_call(dev, err, cuCtxGetDevice, (&dev->device));
    if (status != GH_OK) {
        return status;
    }
    dev->info.ordinal = dev->device;
    status = gh_device_call(
        dev, err, cuDeviceGetName,
        (dev->info.name, (int)sizeof(dev->info.name), dev->device));
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_call(dev, err, cuDriverGetVersion,
                            (&dev->info.driver_version));
    if (status == GH_OK) {
        gh_device_batch_find(dev);
    }
    return status;
}

gh_status gh_device_open(const char *driver, void *context, int ordinal,
                         struct gh_device **dev_p, gh_error *err)
{
    struct gh_device *dev = calloc(1, sizeof(*dev));
    struct gh_device_before before;
    gh_status status;

    if (dev == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a device");
    }

    status = load_driver(driver, dev, err);
    if (status != GH_OK) {
        goto err_dev;
    }
    if (gh_device_call(dev, err, cuInit, (0)) != GH_OK) {
        status = GH_ERR_NO_DRIVER;
        goto err_dev;
    }
    status = find_context(dev, context, ordinal, err);
    if (status != GH_OK) {
        goto err_dev;
    }

    before = gh_device_enter(dev);
    status = gh_device_call(dev, err, cuCtxSetCurrent, (dev->ctx));
    if (status == GH_OK) {
        status = describe(dev, err);
    }
    if (status == GH_OK) {
        status = gh_device_kernels_load(dev, err);
    }
    gh_device_leave(dev, before);
    if (status != GH_OK) {
        goto err_ctx;
    }

    *dev_p = dev;
    return GH_OK;

err_ctx:
    if (dev->retained) {
        dev->drv.cuDevicePrimaryCtxRelease(dev->device);
    }
err_dev:
    free(dev);
    return status;
}

void gh_device_close(struct gh_device *dev)
{
    struct gh_device_before before;

    if (dev == NULL) {
        return;
    }
    before = gh_device_enter(dev);
    gh_device_kernels_unload(dev);
    gh_device_leave(dev, before);
    if (dev->retained && !dev->stuck) {
        dev->drv.cuDevicePrimaryCtxRelease(dev->device);
    }
    free(dev);
}

void gh_device_get_info(const struct gh_device *dev,
                        struct gh_device_info *info)
{
    *info = dev->info;
}

bool gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes)
{
    static const CUdevice_attribute attributes[] = {
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID
    };
    int id[3];

    for (int i = 0; i < 3; i++) {
        if (dev->drv.cuDeviceGetAttribute(&id[i], attributes[i],
                                          dev->device) != CUDA_SUCCESS) {
            return false;
        }
    }
    snprintf(text, bytes, "%04x:%02x:%02x.0", (unsigned)id[0], (unsigned)id[1],
             (unsigned)id[2]);
    return true;
}

uint64_t gh_device_unwritten(const struct gh_device *dev)
{
    return dev->unwritten != NULL ? dev->unwritten(0, NULL) : 0;
}

void gh_device_gather(struct gh_device *dev, uint64_t key, uint64_t number,
                      bool before)
{
    struct gh_device_before thread;

    if (dev->gather == NULL) {
        return;
    }
    thread = gh_device_enter(dev); /* it tells whose process this is */
    dev->gather(key, number, before);
    gh_device_leave(dev, thread);
}

