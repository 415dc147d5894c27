/*
 * nccl_load.c - fills the table of NCCL's entry points.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "driver/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    OLDEST = 22000
};

static const struct row {
    const char *name;
    int since;
    size_t offset;
} rows[] = {
#define NCCL_ENTRY(since, result, name, signature) \
    { #name, since, offsetof(struct nccl, name) },
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY
};

/* The version of the library, or 0. */
static int version_of(void *library)
{
    ncclResult_t (*get)(int *version_p);
    void *entry = dlsym(library, "ncclGetVersion");
    int version = 0;

    if (entry == NULL) {
        return 0;
    }
    memcpy(&get, &entry, sizeof(get));
    return get(&version) == ncclSuccess ? version : 0;
}

int nccl_load(const char *path, struct nccl *nccl, char *text,
              size_t text_bytes)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    memset(nccl, 0, sizeof(*nccl));
    if (library == NULL) {
        snprintf(text, text_bytes, "nccl: %s", dlerror());
        return -1;
    }
    nccl->version = version_of(library);
    if (nccl->version < OLDEST) {
        snprintf(text, text_bytes,
                 "nccl: %s is version %d; 2.20 (%d) or newer is needed", path,
                 nccl->version, OLDEST);
        memset(nccl, 0, sizeof(*nccl));
        return -1;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *entry = dlsym(library, rows[i].name);

        if (entry == NULL && nccl->version >= rows[i].since) {
            snprintf(text, text_bytes,
                     "nccl: %s, version %d, has no %s; use one that is whole",
                     path, nccl->version, rows[i].name);
            memset(nccl, 0, sizeof(*nccl));
            return -1;
        }
        memcpy((char *)nccl + rows[i].offset, &entry, sizeof(entry));
    }
    nccl->library = library;
    return 0;
}
