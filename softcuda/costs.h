/*
 * costs.h - what each operation takes on the virtual clock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_COSTS_H
#define SOFTCUDA_COSTS_H

#include "softcuda/calls.h"
#include "softcuda/copiers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every cost is what it is without a word about it. */
void costs_default(void);
/* Takes lines as doc/softcuda.md has them; 0, or the number of the first that
 * is not understood, counted from 1.  Those before it count. */
int costs_take(const char *text);
/* The same of a file; -1 when it cannot be read. */
int costs_take_file(const char *path);

/* What issuing costs the program. */
uint64_t costs_of_call(enum entry entry);
/* Between two kernels of a stream, or two nodes of a graph. */
uint64_t costs_of_start(bool in_graph);
uint64_t costs_of_set(size_t bytes);
uint64_t costs_of_copy(enum way way, size_t bytes, bool in_graph);
/* A kernel that says nothing of its own: by the bytes that it touches. */
uint64_t costs_of_bytes(size_t bytes);
/* False: nothing was said about the kernel. */
bool costs_of_kernel(const char *name, size_t bytes, uint64_t *ns_p);

#endif
