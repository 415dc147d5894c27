/*
 * beside.h - where a shared object is that comes with this library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_BESIDE_H
#define GH_BASE_BESIDE_H

#include <stddef.h>

/* It lies beside this library: in its plugin directory once installed, in the
 * same one in a build tree.  Failing both, the path is the name, and the
 * loader's own search decides. */
void gh_beside_path(const char *name, char *path, size_t bytes);

#endif
