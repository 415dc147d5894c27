/*
 * calls.c - how often each entry point was called, and failures on demand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/calls.h"

#include <string.h>

const char *const entry_names[] = {
#define DRV_ENTRY(name, version, signature) #name,
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) #symbol,
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED
};

const int entry_versions[] = {
#define DRV_ENTRY(name, version, signature) version,
#include "driver/entries.def"
#undef DRV_ENTRY
#define SOFT_VERSIONED(symbol, name, version, signature) version,
#include "softcuda/engine/versions.def"
#undef SOFT_VERSIONED
};

enum {
    MAX_FAILURES = 16,
    ANY_ENTRY = N_ENTRIES
};

struct failure {
    int entry;
    uint64_t nth;
    CUresult code;
};

static struct failure failures[MAX_FAILURES];
static int n_failures;
static uint64_t calls[N_ENTRIES + 1];

/* Finds the number of an entry point, or that of "*". */
static bool find(const char *name, int *entry_p)
{
    if (strcmp(name, "*") == 0) {
        *entry_p = ANY_ENTRY;
        return true;
    }
    for (int i = 0; i < N_ENTRIES; i++) {
        if (strcmp(name, entry_names[i]) == 0) {
            *entry_p = i;
            return true;
        }
    }
    return false;
}

bool calls_can_fail(int entry)
{
    return entry != E_cuGetErrorName && entry != E_cuGetErrorString;
}

bool calls_fail(const char *name, uint64_t nth, CUresult code)
{
    int entry;

    if (n_failures == MAX_FAILURES || !find(name, &entry) ||
        !calls_can_fail(entry)) {
        return false;
    }
    failures[n_failures++] = (struct failure){ entry, nth, code };
    return true;
}

void calls_fail_none(void)
{
    n_failures = 0;
}

/* The failure that was asked for at this call; CUDA_SUCCESS: none. */
static CUresult failure_due(int entry)
{
    for (int i = 0; i < n_failures; i++) {
        if ((failures[i].entry == entry || failures[i].entry == ANY_ENTRY) &&
            failures[i].nth == calls[failures[i].entry]) {
            return failures[i].code;
        }
    }
    return CUDA_SUCCESS;
}

CUresult calls_count(int entry)
{
    calls[entry]++;
    if (!calls_can_fail(entry)) {
        return CUDA_SUCCESS;
    }
    calls[ANY_ENTRY]++;
    return failure_due(entry);
}

uint64_t calls_made(const char *name)
{
    int entry;

    return find(name, &entry) ? calls[entry] : 0;
}

void calls_start_again(void)
{
    memset(calls, 0, sizeof(calls));
}
