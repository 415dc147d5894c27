/*
 * host.h - the smallest host there is, for the tests of the ABI.
 *
 * Included after the headers of the release that the test is built with.  It
 * reaches the library as a stranger does: dlopen, one symbol, a table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ABI_HOST_H
#define ABI_HOST_H

#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of a shared object that was built. */
static void built(char *path, size_t bytes, const char *name)
{
    const char *builddir = getenv("builddir");

    snprintf(path, bytes, "%s/.libs/%s", builddir != NULL ? builddir : ".",
             name);
}

/* The table of the library that was built, or NULL after a failed point. */
static const gh_api *load_api(void)
{
    const gh_api *api = NULL;
    char path[4096];
    gh_get_api_fn *get;
    gh_error err = { "" };
    void *library, *symbol;

    built(path, sizeof(path), "libgraphhooks.so.0");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!ok(library != NULL, "the library is loaded by its SONAME")) {
        diag("%s", dlerror());
        return NULL;
    }
    symbol = dlsym(library, GH_GET_API_SYMBOL);
    if (!ok(symbol != NULL, "one symbol is enough: " GH_GET_API_SYMBOL)) {
        return NULL;
    }
    memcpy(&get, &symbol, sizeof(get));
    is_status(get(GH_ABI_MAJOR, &api, &err), GH_OK, &err,
              "the library speaks the major of these headers");
    return api;
}

#endif
