/*
 * library.h - the graphhooks library, loaded at run time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LIBRARY_H
#define ENGINE_LIBRARY_H

#include <graphhooks.h>

#include <stddef.h>

struct library {
    void *handle; /* NULL: not loaded */
    const gh_api *gh;
};

/* Returns 0, or -1 with one sentence in error.  What the library keeps for the
 * life of the process stays reachable.  In both cases library_close() frees
 * it. */
int library_open(struct library *library, const char *path, char *error,
                 size_t error_bytes);
void library_close(struct library *library);

#endif
