/*
 * control.h - the lock around every entry point, and what is counted there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CONTROL_H
#define SOFTCUDA_CONTROL_H

#include "driver/driver.h"

/* A number for each entry point. */
enum entry {
#define DRV_ENTRY(name, version, signature) E_##name,
#include "driver/entries.def"
#undef DRV_ENTRY
    N_ENTRIES
};

extern const char *const entry_names[];
extern const int entry_versions[];

/* CUDA_SUCCESS: the lock is held, and the call may go on.  Any other code is
 * the call's answer. */
CUresult soft_enter(enum entry entry);
/* The call is over; passes its code on. */
CUresult soft_leave(CUresult code);

#endif
