/*
 * ipc.h - device memory that other processes reach.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_IPC_H
#define SOFTCUDA_IPC_H

#include "driver/driver.h"

#include <stddef.h>

CUresult mem_range(CUdeviceptr *base_p, size_t *bytes_p, CUdeviceptr address);
CUresult ipc_get(CUipcMemHandle *handle_p, CUdeviceptr address);
CUresult ipc_open(CUdeviceptr *address_p, CUipcMemHandle handle,
                  unsigned int flags);
CUresult ipc_close(CUdeviceptr address);

#endif
