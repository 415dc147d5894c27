/*
 * beside.c - see beside.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/beside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void gh_beside_path(const char *name, char *path, size_t bytes)
{
    static const char *const below[] = { "graphhooks/", "" };
    void (*function)(const char *, char *, size_t) = gh_beside_path;
    Dl_info self;
    void *address;

    memcpy(&address, &function, sizeof(address));
    if (dladdr(address, &self) != 0 && strrchr(self.dli_fname, '/') != NULL) {
        int dir = (int)(strrchr(self.dli_fname, '/') - self.dli_fname) + 1;

        for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
            snprintf(path, bytes, "%.*s%s%s", dir, self.dli_fname, below[i],
                     name);
            if (access(path, R_OK) == 0) {
                return;
            }
        }
    }
    snprintf(path, bytes, "%s", name);
}
