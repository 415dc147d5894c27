/*
 * calls.h - how often each entry point was called, and failures on demand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_CALLS_H
#define SOFTCUDA_CALLS_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

/* A number for each entry point. */
enum entry {
#define DRV_ENTRY(name, version, signature) E_##name,
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) E_##symbol,
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED
    N_ENTRIES
};

/* The symbol of each entry point, with its version if it has one. */
extern const char *const entry_names[];
extern const int entry_versions[];

/* False for the two entry points that only put an error into words. */
bool calls_can_fail(int entry);

/* Makes the nth call from now on return the code and do nothing else.  "*"
 * counts the calls of all entry points that can fail.  False if no such entry
 * point can fail, or if too many failures are asked for. */
bool calls_fail(const char *name, uint64_t nth, CUresult code);
void calls_fail_none(void);

/* Counts a call.  Returns the failure that was asked for, or CUDA_SUCCESS. */
CUresult calls_count(int entry);
uint64_t calls_made(const char *name);
void calls_start_again(void);

#endif
