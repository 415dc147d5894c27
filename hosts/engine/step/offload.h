/*
 * offload.h - gives what parts keep for their backward to the library.
 *
 * Sets have no memory for it.  Before each part the library says where it is,
 * and the set's pointers are set to that.  A replay runs no parts: passes.c
 * then sets the pointer to what the next pass reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_OFFLOAD_H
#define ENGINE_OFFLOAD_H

#include "model/parts.h"
#include "step/host.h"

/* The hooks for the parts of a pass. */
struct part_hooks offload_hooks(struct host *host);

#endif
