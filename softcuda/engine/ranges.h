/*
 * ranges.h - the table of reserved addresses, to which memory is mapped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RANGES_H
#define SOFTCUDA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    uintptr_t base;
    size_t bytes;
    uint64_t number; /* from 1, in the order of reservation */
    struct range *next;
};

/* False: there is no memory for the table. */
bool range_add(uintptr_t base, size_t bytes);
void range_remove(struct range *range);
/* The range that the address lies in; NULL: it lies in none. */
struct range *range_find(uintptr_t address);
uint64_t range_count(void);

#endif
