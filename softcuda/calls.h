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
#include "softcuda/versions.def"
#undef SOFT_VERSIONED
    N_ENTRIES
};

/* Of a versioned one, its symbol. */
extern const char *const entry_names[];
extern const int entry_versions[];

/* The two that only put an error into words never fail. */
bool calls_can_fail(int entry);

/* The nth call from now on answers with the code, and does nothing else; "*"
 * counts the calls of all that can fail.  False when the name is none of an
 * entry point that can fail, and when too many failures are asked for. */
bool calls_fail(const char *name, uint64_t nth, CUresult code);
void calls_fail_none(void);

/* Counts a call; the failure asked for there, or CUDA_SUCCESS. */
CUresult calls_count(int entry);
uint64_t calls_made(const char *name);
void calls_start_again(void);

#endif
