/*
 * other.c - finds out whether the host uses another driver than the session.
 *
 * If the host is on CUDA and its session on the software device, or the other
 * way round, the host's streams mean nothing to the session's driver.  The
 * other driver is looked for among the objects that the process has loaded;
 * nothing is loaded for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/private.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define MAX_DRIVERS 4

/* The drivers that the process has loaded.  They are asked only after the list
 * is complete, because the loader holds its lock while it lists them. */
struct drivers {
    char path[MAX_DRIVERS][512];
    uint32_t n;
};

static bool is_driver(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    return strncmp(name, GH_CUDA_NAME, strlen(GH_CUDA_NAME)) == 0 ||
           strcmp(name, GH_SOFT_NAME) == 0;
}

static int keep_driver(struct dl_phdr_info *info, size_t bytes, void *user)
{
    struct drivers *drivers = user;

    (void)bytes;
    if (drivers->n < MAX_DRIVERS && info->dlpi_name != NULL &&
        strlen(info->dlpi_name) < sizeof(drivers->path[0]) &&
        is_driver(info->dlpi_name)) {
        strcpy(drivers->path[drivers->n++], info->dlpi_name);
    }
    return 0;
}

/* Whether a context of the driver is current on this thread, which means that
 * the host works with it. */
static bool has_context(void *library)
{
    void *entry = dlsym(library, "cuCtxGetCurrent");
    CUresult (*get_current)(CUcontext *);
    CUcontext ctx = NULL;

    if (entry == NULL) {
        return false;
    }
    memcpy(&get_current, &entry, sizeof(get_current));
    return get_current(&ctx) == CUDA_SUCCESS && ctx != NULL;
}

bool gh_device_other_driver(const struct gh_device *dev, char *path,
                            size_t bytes)
{
    struct drivers drivers = { .n = 0 };

    dl_iterate_phdr(keep_driver, &drivers);
    for (uint32_t i = 0; i < drivers.n; i++) {
        void *library = dlopen(drivers.path[i], RTLD_LAZY | RTLD_NOLOAD);
        bool found;

        if (library == NULL) {
            continue;
        }
        found = library != dev->drv.library && has_context(library);
        dlclose(library); /* it stays loaded, by whoever loaded it */
        if (found) {
            snprintf(path, bytes, "%s", drivers.path[i]);
            return true;
        }
    }
    return false;
}
