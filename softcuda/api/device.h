/*
 * device.h - versions, errors, devices, contexts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_DEVICE_H
#define SOFTCUDA_DEVICE_H

#include "driver/driver.h"

CUresult dev_init(unsigned int flags);
CUresult dev_version(int *version_p);
CUresult dev_error_name(CUresult code, const char **name_p);
CUresult dev_error_text(CUresult code, const char **text_p);
CUresult dev_get(CUdevice *device_p, int ordinal);
CUresult dev_count(int *count_p);
CUresult dev_name(char *name, int bytes, CUdevice device);
CUresult dev_attribute(int *value_p, CUdevice_attribute what, CUdevice device);
CUresult ctx_retain(CUcontext *ctx_p, CUdevice device);
CUresult ctx_release(CUdevice device);
CUresult ctx_get(CUcontext *ctx_p);
CUresult ctx_set(CUcontext ctx);
CUresult ctx_device(CUdevice *device_p);
CUresult ctx_sync(void);
CUresult ctx_priorities(int *least_p, int *greatest_p);

#endif
