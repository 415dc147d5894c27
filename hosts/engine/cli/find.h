/*
 * find.h - finds the engine's companions: drivers, the library, the text.
 *
 * In a build tree and in an installed tree, companions beside the program are
 * found first, so that files of two installations are never mixed.
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

/* Writes the path of the first companion that exists.  If none does, it writes
 * a name that the loader may find, or the place where it should have been. */
void find_companion(enum companion which, char *path, size_t path_bytes);

#endif
