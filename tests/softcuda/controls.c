/*
 * controls.c - finds the emulator's controls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct controls soft;

static void find(const char *name, void *slot)
{
    void *symbol = dlsym(drv.library, name);

    ok(symbol != NULL, "%s is exported", name);
    memcpy(slot, &symbol, sizeof(symbol));
}

bool controls_open(int *status_p)
{
    const char *which = getenv("GRAPHHOOKS_TEST_DRIVER");

    if (which != NULL && strcmp(which, "cuda") == 0) {
        *status_p = skip_all("these points are about the software device");
        return false;
    }
    if (!contract_open(status_p)) {
        return false;
    }
    find("softcuda_count", &soft.count);
    find("softcuda_configure", &soft.configure);
    find("softcuda_races", &soft.races);
    find("softcuda_unwritten", &soft.unwritten);
    find("softcuda_unmapped", &soft.unmapped);
    find("softcuda_discard", &soft.discard);
    find("softcuda_gather", &soft.gather);
    find("softcuda_label", &soft.label);
    find("softcuda_others", &soft.others);
    find("softcuda_clock", &soft.clock);
    find("softcuda_costs", &soft.costs);
    find("softcuda_calls", &soft.calls);
    find("softcuda_entry", &soft.entry);
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("the reports will show here");
    }
    return true;
}

void configure(const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (soft.configure(text) != 0) {
        ok(false, "\"%s\" is a configuration", text);
    }
}

uint64_t races(void)
{
    return soft.races(0, NULL);
}

const char *race(uint64_t i)
{
    const char *text = NULL;

    soft.races(i, &text);
    return text;
}

uint64_t unwritten(void)
{
    return soft.unwritten(0, NULL);
}

const char *unwritten_read(uint64_t i)
{
    const char *text = NULL;

    soft.unwritten(i, &text);
    return text;
}

softcuda_counts counts(void)
{
    softcuda_counts c;

    soft.count(&c);
    return c;
}

void reported(uint64_t expected, const char *what)
{
    drv.cuCtxSynchronize();
    is_int(unwritten(), expected, "%s is %s", what,
           expected != 0 ? "reported" : "not reported");
}

bool unwritten_says(const char *text)
{
    return unwritten_read(0) != NULL && strstr(unwritten_read(0), text) != NULL;
}

/* ---- kernels ------------------------------------------------------------- */

const uint32_t kernel_params[2] = { 8, 8 };

void *kernel_at(void *param)
{
    return (void *)(uintptr_t) * (CUdeviceptr *)param;
}

void kernel_copy(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    memmove(kernel_at(params[0]), kernel_at(params[1]), KERNEL_BYTES);
}

void kernel_nothing(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    (void)params;
}

void kernel_copy_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    kernel_look_touch(launch, params, touch, sink);
    touch(sink, kernel_at(params[0]), KERNEL_BYTES, SOFTCUDA_COPY_TO);
}

void kernel_look_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, kernel_at(params[1]), KERNEL_BYTES, SOFTCUDA_COPY_FROM);
}
