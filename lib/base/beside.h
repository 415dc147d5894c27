/*
 * beside.h - finds a shared object that comes with this library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_BESIDE_H
#define GH_BASE_BESIDE_H

#include <stddef.h>

/* The object lies beside this library: in the plugin directory once installed,
 * in the same directory in a build tree.  If it is in neither, the path is the
 * name alone, and the loader searches for it. */
void gh_beside_path(const char *name, char *path, size_t bytes);

#endif
