/*
 * library.c - see library.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int library_open(struct library *library, const char *path, char *error,
                 size_t error_bytes)
{
    void *symbol;
    gh_get_api_fn *get_api;
    gh_error err = { "" };

    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library->handle == NULL) {
        snprintf(error, error_bytes,
                 "%s; give the graphhooks library by --library", dlerror());
        return -1;
    }
    symbol = dlsym(library->handle, GH_GET_API_SYMBOL);
    if (symbol == NULL) {
        snprintf(error, error_bytes,
                 "--library %s has no %s: it is not graphhooks", path,
                 GH_GET_API_SYMBOL);
        return -1;
    }
    memcpy(&get_api, &symbol, sizeof(get_api));
    if (get_api(GH_ABI_MAJOR, &library->gh, &err) != GH_OK) {
        snprintf(error, error_bytes, "--library %s: %s", path, err.text);
        return -1;
    }
    return 0;
}

void library_close(struct library *library)
{
    if (library->handle != NULL) {
        dlclose(library->handle);
    }
    *library = (struct library){ 0 };
}
