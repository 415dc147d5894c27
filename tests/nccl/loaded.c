/*
 * loaded.c - the device and the library under test, and what they have found.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/softcuda.h"
#include "softnccl/softnccl.h"
#include "tests/nccl/ranks.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver drv;
struct nccl nccl;

static bool soft = true;
static softcuda_configure_fn *configure;
static softcuda_races_fn *races;
static softcuda_unmapped_fn *unmapped;
static softnccl_reports_fn *reports;
static softnccl_forget_fn *forget;
static softnccl_count_fn *count;
static softcuda_count_fn *device_count;
static softcuda_calls_fn *calls;
static softcuda_clock_fn *now;
static softcuda_costs_fn *costs;

bool ranks_are_soft(void)
{
    return soft;
}

static void find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);

    ok(symbol != NULL, "%s is exported", name);
    memcpy(slot, &symbol, sizeof(symbol));
}

static const char *path_of(const char *variable, const char *built)
{
    const char *path = getenv(variable);

    return path != NULL && *path != '\0' ? path : built;
}

const char *ranks_driver(void)
{
    return soft ? path_of("GRAPHHOOKS_SOFTCUDA",
                          "./.libs/libgraphhooks-softcuda.so")
                : "cuda";
}

const char *ranks_nccl(void)
{
    return soft ? path_of("GRAPHHOOKS_SOFTNCCL", "./.libs/libsoftnccl.so")
                : getenv("GRAPHHOOKS_TEST_NCCL");
}

static bool open_soft(int *status_p)
{
    char text[256];

    setenv("SOFTCUDA_DEVICES", "8", 1);
    setenv("SOFTCUDA_PROCESSES", "1", 1);
    if (driver_load(ranks_driver(), &drv, text, sizeof(text)) != 0 ||
        nccl_load(ranks_nccl(), &nccl, text, sizeof(text)) != 0) {
        ok(false, "the software device and softnccl load: %s", text);
        *status_p = done_testing();
        return false;
    }
    find(drv.library, "softcuda_configure", &configure);
    find(drv.library, "softcuda_races", &races);
    find(drv.library, "softcuda_unmapped", &unmapped);
    find(drv.library, "softcuda_count", &device_count);
    find(drv.library, "softcuda_calls", &calls);
    find(drv.library, "softcuda_clock", &now);
    find(drv.library, "softcuda_costs", &costs);
    find(nccl.library, "softnccl_reports", &reports);
    find(nccl.library, "softnccl_forget", &forget);
    find(nccl.library, "softnccl_count", &count);
    drv.cuInit(0);
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("the reports will show here");
    }
    return true;
}

/* Nothing of the device is touched here: the ranks are children, and a
 * process that has opened a device cannot fork. */
static bool open_real(const char *path, int *status_p)
{
    char text[256];

    if (driver_load("libcuda.so.1", &drv, text, sizeof(text)) != 0 ||
        (path != NULL && nccl_load(path, &nccl, text, sizeof(text)) != 0)) {
        *status_p = skip_all("%s", text);
        return false;
    }
    return true;
}

bool ranks_have_nccl(void)
{
    return nccl.library != NULL;
}

bool ranks_open_device(int *status_p)
{
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");
    const char *path = getenv("GRAPHHOOKS_TEST_NCCL");

    soft = driver == NULL || strcmp(driver, "cuda") != 0;
    return soft ? open_soft(status_p)
                : open_real(path != NULL && *path != '\0' ? path : NULL,
                            status_p);
}

bool ranks_open(int *status_p)
{
    const char *driver = getenv("GRAPHHOOKS_TEST_DRIVER");
    const char *path = getenv("GRAPHHOOKS_TEST_NCCL");

    soft = driver == NULL || strcmp(driver, "cuda") != 0;
    if (soft) {
        return open_soft(status_p);
    }
    if (path == NULL || *path == '\0') {
        *status_p = skip_all("GRAPHHOOKS_TEST_NCCL names no libnccl.so.2");
        return false;
    }
    return open_real(path, status_p);
}

uint64_t ranks_waits(void)
{
    softcuda_counts c;

    device_count(&c);
    return c.waits;
}

uint64_t ranks_calls(const char *entry)
{
    return calls(entry);
}

uint64_t ranks_graphs(void)
{
    softcuda_counts c;

    device_count(&c);
    return c.execs;
}

uint64_t ranks_left(void)
{
    softcuda_counts c;

    device_count(&c);
    return c.device_allocations + c.host_allocations + c.streams + c.events +
           c.graphs + c.execs + c.captures;
}

uint64_t soft_communicators(void)
{
    softnccl_counts left = { 0 };

    if (soft) {
        count(&left);
    }
    return left.communicators;
}

void soft_is_clean(const char *name)
{
    softnccl_counts left;
    softcuda_counts device;

    if (!soft) {
        return;
    }
    is_int(soft_races(), 0, "%s: the ranks race with nothing", name);
    is_int(soft_reports(), 0, "%s: softnccl finds nothing%s%s", name,
           soft_reports() != 0 ? ": " : "",
           soft_reports() != 0 ? soft_report(0) : "");
    count(&left);
    is_int(left.communicators, 0, "%s: no communicator is left", name);
    is_int(left.rendezvous, 0, "%s: no operation is left", name);
    device_count(&device);
    is_int(device.device_allocations + device.streams + device.execs, 0,
           "%s: nothing of the devices is left", name);
}

/* ---- what was found ------------------------------------------------------ */

uint64_t soft_races(void)
{
    return soft ? races(0, NULL) : 0;
}

uint64_t soft_unmapped(void)
{
    return unmapped(0, NULL);
}

uint64_t soft_reports(void)
{
    return soft ? reports(0, NULL) : 0;
}

const char *soft_report(uint64_t i)
{
    const char *text = NULL;

    if (soft) {
        reports(i, &text);
    }
    return text != NULL ? text : "";
}

bool soft_reported(const char *part)
{
    for (uint64_t i = 0; i < soft_reports(); i++) {
        if (strstr(soft_report(i), part) != NULL) {
            return true;
        }
    }
    return false;
}

void soft_configure(const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (configure(text) != 0) {
        ok(false, "\"%s\" is a configuration", text);
    }
    forget();
}

uint64_t soft_clock(void)
{
    return now();
}

void soft_costs(const char *lines)
{
    is_int(costs(lines), 0, "the costs are understood");
}
