/*
 * host_memory.h - malloc and free of a suite and of what it links: counted, and
 * refused on request.
 *
 * Such a suite is linked with $(host_memory_ldflags), which wrap them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_HOST_MEMORY_H
#define SUPPORT_HOST_MEMORY_H

#include <stdint.h>

/* Counts from here on, and refuses none. */
void host_memory_begin(void);
/* Allocations that are not freed since then. */
int64_t host_memory_left(void);

/* Refuses allocation number `n` of those from here on, from 1; 0: none. */
void host_memory_refuse(uint32_t n);
/* How many there were, with the one that was refused. */
uint32_t host_memory_asked(void);

#endif
