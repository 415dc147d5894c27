/*
 * load.c - fills the table of driver entry points.
 *
 * Every entry goes through cuGetProcAddress with the version its signature
 * was written for: a plain dlsym("cuMemAlloc") would return the 32-bit entry
 * of CUDA 3, and newer drivers keep several signatures under one name.
 * cuGetProcAddress itself changed in CUDA 12, so both forms are known here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "driver/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef CUresult (*get_proc_v1)(const char *name, void **entry_p, int version,
                                uint64_t flags);
typedef CUresult (*get_proc_v2)(const char *name, void **entry_p, int version,
                                uint64_t flags, int *query_status);

/* Entries of later versions may be missing; they are NULL then. */
enum {
    NEEDED = 11040
};

static const struct row {
    const char *name;
    int version;
    size_t offset;
} rows[] = {
#define DRV_ENTRY(name, version, signature) \
    { #name, version, offsetof(struct driver, name) },
#include "driver/entries.def"
#undef DRV_ENTRY
};

/* dlsym returns an object pointer; ISO C has no cast from it to a function. */
static void assign(void *slot, void *entry)
{
    memcpy(slot, &entry, sizeof(entry));
}

static void *find(void *v2_entry, void *v1_entry, const char *name,
                  int version)
{
    get_proc_v2 v2;
    get_proc_v1 v1;
    void *entry = NULL;
    int query_status = 0;

    if (v2_entry != NULL) {
        assign(&v2, v2_entry);
        if (v2(name, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT,
               &query_status) != CUDA_SUCCESS) {
            return NULL;
        }
        return entry;
    }

    assign(&v1, v1_entry);
    if (v1(name, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT) !=
        CUDA_SUCCESS) {
        return NULL;
    }
    return entry;
}

int driver_load(const char *path, struct driver *drv, char *text,
                size_t text_bytes)
{
    void *library, *v1, *v2;

    memset(drv, 0, sizeof(*drv));

    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        snprintf(text, text_bytes, "driver: %s", dlerror());
        return -1;
    }

    v2 = dlsym(library, "cuGetProcAddress_v2");
    v1 = dlsym(library, "cuGetProcAddress");
    if (v1 == NULL && v2 == NULL) {
        snprintf(text, text_bytes,
                 "driver: %s has no cuGetProcAddress; graphhooks needs a "
                 "driver for CUDA 11.4 or newer",
                 path);
        dlclose(library);
        return -1;
    }

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *entry = find(v2, v1, rows[i].name, rows[i].version);

        if (entry == NULL && rows[i].version <= NEEDED) {
            snprintf(text, text_bytes,
                     "driver: %s has no %s (CUDA %d.%d); use a newer driver",
                     path, rows[i].name, rows[i].version / 1000,
                     rows[i].version % 1000 / 10);
            memset(drv, 0, sizeof(*drv));
            dlclose(library);
            return -1;
        }
        assign((char *)drv + rows[i].offset, entry);
    }

    drv->library = library;
    return 0;
}

void *driver_find(const struct driver *drv, const char *name, int version)
{
    return find(dlsym(drv->library, "cuGetProcAddress_v2"),
                dlsym(drv->library, "cuGetProcAddress"), name, version);
}
