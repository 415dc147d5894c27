/*
 * enter.c - the begin and the end of every entry point.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/enter.h"

#include "softnccl/report.h"
#include "softnccl/stuck.h"

#include <dlfcn.h>
#include <string.h>

static const char device_name[] = "libgraphhooks-softcuda.so";

/* The one that the program has loaded, by whatever path. */
static const softcuda_collective_calls *find_device(void)
{
    void *library = dlopen(device_name, RTLD_NOW | RTLD_NOLOAD);
    softcuda_collectives_fn *meet;
    void *symbol;

    if (library == NULL) {
        return NULL;
    }
    symbol = dlsym(library, "softcuda_collectives");
    if (symbol == NULL) {
        return NULL;
    }
    memcpy(&meet, &symbol, sizeof(meet));
    return meet();
}

bool soft_begin(void)
{
    const softcuda_collective_calls *found =
        __atomic_load_n(&device, __ATOMIC_ACQUIRE);

    if (found == NULL) {
        found = find_device();
        if (found == NULL) {
            report_nowhere("softnccl: no software device is loaded; load "
                           "libgraphhooks-softcuda.so first, or use NCCL");
            return false;
        }
        found->lock();
        if (device == NULL) {
            __atomic_store_n(&device, found, __ATOMIC_RELEASE);
            found->watch(stuck_watch);
        }
        return true;
    }
    found->lock();
    return true;
}

ncclResult_t soft_end(ncclResult_t result)
{
    device->unlock();
    return result;
}
