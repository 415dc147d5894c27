/*
 * costs.h - how long each operation takes on the virtual clock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_COSTS_H
#define SOFTCUDA_COSTS_H

#include "softcuda/engine/calls.h"
#include "softcuda/engine/copiers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets every cost to its default. */
void costs_default(void);
/* Reads lines as doc/softcuda.md describes them.  Returns 0, or the number of
 * the first line that it does not understand, from 1.  The lines before that
 * one count. */
int costs_take(const char *text);
/* Reads the lines of a file in this way.  Returns -1 if it cannot be read. */
int costs_take_file(const char *path);

/* The time that issuing takes the program. */
uint64_t costs_of_call(enum entry entry);
/* The time between two kernels of a stream, or two nodes of a graph. */
uint64_t costs_of_start(bool in_graph);
uint64_t costs_of_set(size_t bytes);
uint64_t costs_of_copy(enum way way, size_t bytes, bool in_graph);
/* The time of a kernel without a cost of its own, by the bytes it touches. */
uint64_t costs_of_bytes(size_t bytes);
/* False: no cost was given for the kernel. */
bool costs_of_kernel(const char *name, size_t bytes, uint64_t *ns_p);

#endif
