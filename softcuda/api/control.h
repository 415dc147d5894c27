/*
 * control.h - what every entry point calls first and last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CONTROL_H
#define SOFTCUDA_CONTROL_H

#include "driver/driver.h"
#include "softcuda/engine/calls.h"

/* Takes the lock.  The first call of all also reads the settings. */
void soft_lock(void);
/* On CUDA_SUCCESS the lock is held, and the call may go on.  Any other code is
 * what the call has to return. */
CUresult soft_enter(enum entry entry);
/* Ends the call, and returns its code. */
CUresult soft_leave(CUresult code);

#endif
