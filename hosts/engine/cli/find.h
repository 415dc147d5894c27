/*
 * find.h - where the engine's companions lie: drivers, the library, the text.
 *
 * In a build tree and in an installed tree alike the companions are looked
 * for beside the program first, so that a copy never mixes with another.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_FIND_H
#define ENGINE_FIND_H

#include <stddef.h>

enum companion {
    FIND_SOFTCUDA,
    FIND_SOFTNCCL,
    FIND_LIBRARY,
    FIND_TEXT
};

/* The path of the first one that exists; where none does, what the loader
 * may still know, or the place it should have been. */
void find_companion(enum companion which, char *path, size_t path_bytes);

#endif
