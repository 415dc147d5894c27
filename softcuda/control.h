/*
 * control.h - what every entry point does first and last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CONTROL_H
#define SOFTCUDA_CONTROL_H

#include "driver/driver.h"
#include "softcuda/calls.h"

/* Takes the lock; the first time of all, reads the settings. */
void soft_lock(void);
/* CUDA_SUCCESS: the lock is held, and the call may go on.  Any other code is
 * the call's answer. */
CUresult soft_enter(enum entry entry);
/* The call is over; passes its code on. */
CUresult soft_leave(CUresult code);

#endif
