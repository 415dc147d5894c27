/*
 * enter.h - the begin and the end of every entry point.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_ENTER_H
#define SOFTNCCL_ENTER_H

#include "softnccl/state.h"

/* Takes the lock; false when no software device is loaded. */
bool soft_begin(void);
ncclResult_t soft_end(ncclResult_t result);

#endif
