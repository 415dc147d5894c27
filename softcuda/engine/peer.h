/*
 * peer.h - which device's kernels reach which other device's memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_PEER_H
#define SOFTCUDA_PEER_H

#include "driver/driver.h"
#include "softcuda/engine/alloc.h"

#include <stdbool.h>

/* Whether a kernel of the context may touch the memory: its device's own, that
 * of a device to which it has peer access, or what came by an opened handle. */
bool peer_reaches(CUcontext from, const struct alloc *to);
/* The context was released for the last time, so nothing reaches it any
 * more. */
void peer_forget(CUcontext ctx);

CUresult peer_can(int *can_p, CUdevice device, CUdevice peer);
CUresult peer_enable(CUcontext peer, unsigned int flags);
CUresult peer_disable(CUcontext peer);

#endif
