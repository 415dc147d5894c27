/*
 * handle.h - the set of handles that are alive.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_HANDLE_H
#define SOFTCUDA_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

enum handle_kind {
    HANDLE_FREE,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
    HANDLE_GRAPH,
    HANDLE_EXEC,
    N_HANDLE_KINDS
};

/* False when there is no memory. */
bool handle_add(void *object, enum handle_kind kind);
void handle_remove(void *object);
bool handle_is(const void *object, enum handle_kind kind);
uint64_t handle_count(enum handle_kind kind);

#endif
