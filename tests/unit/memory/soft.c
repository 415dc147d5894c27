/*
 * soft.c - see soft.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "tests/unit/memory/soft.h"

#include "tap/tap.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct gh_device *soft_devices[SOFT_DEVICES];

static softcuda_count_fn *count;
static softcuda_configure_fn *configure;
static softcuda_races_fn *races;

softcuda_counts soft_now(void)
{
    softcuda_counts counts = { 0 };

    count(&counts);
    return counts;
}

uint64_t soft_races(void)
{
    const char *text;

    return races(0, &text);
}

void soft_configure(const char *settings)
{
    configure(settings);
}

static bool open_all(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    gh_error err;

    if (library == NULL) {
        return false;
    }
    count = (softcuda_count_fn *)dlsym(library, "softcuda_count");
    configure = (softcuda_configure_fn *)dlsym(library, "softcuda_configure");
    races = (softcuda_races_fn *)dlsym(library, "softcuda_races");
    for (int i = 0; i < SOFT_DEVICES; i++) {
        if (gh_device_open(path, NULL, i, &soft_devices[i], &err) != GH_OK) {
            return false;
        }
    }
    return true;
}

int soft_run(void (*tests)(void))
{
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");
    struct gh_device_before before;

    if (driver != NULL && strcmp(driver, "cuda") == 0) {
        return skip_all("only the software device counts and fails");
    }
    setenv("SOFTCUDA_DEVICES", "2", 1);
    path = path != NULL ? path : ".libs/libgraphhooks-softcuda.so";
    if (!open_all(path)) {
        return skip_all("no software device at %s", path);
    }
    before = gh_device_enter(soft_devices[0]);
    tests();
    gh_device_leave(soft_devices[0], before);
    for (int i = SOFT_DEVICES; i-- > 0;) {
        gh_device_close(soft_devices[i]);
    }
    return done_testing();
}
