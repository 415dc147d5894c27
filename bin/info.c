/*
 * info.c - versions, families, drivers and devices.
 *
 * Every driver is asked in turn: CUDA's, the software device's, and the one
 * that GRAPHHOOKS_DRIVER names by its path.  What a driver does not answer
 * is told as its own sentence, in place of the answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "info.h"

#include "config/env.h"
#include "driver/driver.h"
#include "families.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SOFT_NAME "libgraphhooks-softcuda.so"
#define MOST_DEVICES 64

struct device {
    char name[128];
    int major, minor, multiprocessors;
    size_t free, total; /* 0, 0: the driver would not say */
};

struct finding {
    const char *kind;
    char path[GH_ENV_PATH_BYTES];
    char reason[512]; /* empty: the driver works */
    int version;
    int n_devices;
    struct device devices[MOST_DEVICES];
};

/* Beside the program, as built or as installed; else where configured. */
static void soft_path(char *path, size_t bytes)
{
    static const char *const places[] = {
        ".libs/" SOFT_NAME,
        "../.libs/" SOFT_NAME,
        "../lib/graphhooks/" SOFT_NAME,
    };
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL) {
        slash[1] = '\0';
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            snprintf(path, bytes, "%s%s", self, places[i]);
            if (access(path, R_OK) == 0) {
                return;
            }
        }
    }
    snprintf(path, bytes, "%s", PKGLIBDIR "/" SOFT_NAME);
}

static void say(struct finding *found, const struct driver *drv,
                const char *entry, CUresult result)
{
    const char *name = NULL, *text = NULL;

    drv->cuGetErrorName(result, &name);
    drv->cuGetErrorString(result, &text);
    snprintf(found->reason, sizeof(found->reason), "%s: %d %s (%s)", entry,
             result, name != NULL ? name : "?",
             text != NULL ? text : "unknown to this driver");
}

/* Memory is a question to a context, which may not be had: another process
 * can own the device. */
static void look_at_memory(const struct driver *drv, CUdevice handle,
                           struct device *device)
{
    CUcontext ctx, previous = NULL;

    if (drv->cuDevicePrimaryCtxRetain(&ctx, handle) != CUDA_SUCCESS) {
        return;
    }
    drv->cuCtxGetCurrent(&previous);
    if (drv->cuCtxSetCurrent(ctx) != CUDA_SUCCESS ||
        drv->cuMemGetInfo(&device->free, &device->total) != CUDA_SUCCESS) {
        device->free = 0;
        device->total = 0;
    }
    drv->cuCtxSetCurrent(previous);
    drv->cuDevicePrimaryCtxRelease(handle);
}

static void look_at_device(const struct driver *drv, int ordinal,
                           struct device *device)
{
    CUdevice handle;

    memset(device, 0, sizeof(*device));
    snprintf(device->name, sizeof(device->name), "?");
    if (drv->cuDeviceGet(&handle, ordinal) != CUDA_SUCCESS) {
        return;
    }
    drv->cuDeviceGetName(device->name, (int)sizeof(device->name), handle);
    drv->cuDeviceGetAttribute(
        &device->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
    drv->cuDeviceGetAttribute(
        &device->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
    drv->cuDeviceGetAttribute(&device->multiprocessors,
                              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle);
    look_at_memory(drv, handle, device);
}

static void look(struct finding *found)
{
    struct driver drv;
    CUresult result;

    found->reason[0] = '\0';
    found->n_devices = 0;
    found->version = 0;
    if (driver_load(found->path, &drv, found->reason, sizeof(found->reason)) !=
        0) {
        return;
    }
    drv.cuDriverGetVersion(&found->version);
    result = drv.cuInit(0);
    if (result != CUDA_SUCCESS) {
        say(found, &drv, "cuInit", result);
        return;
    }
    result = drv.cuDeviceGetCount(&found->n_devices);
    if (result != CUDA_SUCCESS) {
        found->n_devices = 0;
        say(found, &drv, "cuDeviceGetCount", result);
        return;
    }
    if (found->n_devices > MOST_DEVICES) {
        found->n_devices = MOST_DEVICES;
    }
    for (int i = 0; i < found->n_devices; i++) {
        look_at_device(&drv, i, &found->devices[i]);
    }
}

static double gib(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0 * 1024.0);
}

static void print_text(const struct finding *found)
{
    printf("%-9s %s\n", found->kind, found->path);
    if (found->reason[0] != '\0') {
        printf("          not usable: %s\n", found->reason);
        return;
    }
    printf("          CUDA %d.%d, %d device%s\n", found->version / 1000,
           found->version % 1000 / 10, found->n_devices,
           found->n_devices == 1 ? "" : "s");
    for (int i = 0; i < found->n_devices; i++) {
        const struct device *device = &found->devices[i];

        printf("          %d: %s, compute capability %d.%d, "
               "%d multiprocessors, ",
               i, device->name, device->major, device->minor,
               device->multiprocessors);
        if (device->total != 0) {
            printf("%.1f of %.1f GiB free\n", gib(device->free),
                   gib(device->total));
        } else {
            printf("memory unknown\n");
        }
    }
}

static void print_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c < 0x20) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void print_json(const struct finding *found)
{
    printf("{\"kind\": \"%s\", \"path\": ", found->kind);
    print_string(found->path);
    if (found->reason[0] != '\0') {
        printf(", \"usable\": false, \"reason\": ");
        print_string(found->reason);
        printf(", \"devices\": []}");
        return;
    }
    printf(", \"usable\": true, \"cuda\": \"%d.%d\", \"devices\": [",
           found->version / 1000, found->version % 1000 / 10);
    for (int i = 0; i < found->n_devices; i++) {
        const struct device *device = &found->devices[i];

        printf("%s{\"ordinal\": %d, \"name\": ", i == 0 ? "" : ", ", i);
        print_string(device->name);
        printf(", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, "
               "\"free_bytes\": %zu, \"total_bytes\": %zu}",
               device->major, device->minor, device->multiprocessors,
               device->free, device->total);
    }
    printf("]}");
}

void info_print(bool json)
{
    static struct finding found; /* one at a time: it is large */
    static struct gh_env env;
    static const char *const kinds[] = { "cuda", "soft", "named" };
    gh_error err;
    bool named = false;

    if (gh_env_load(gh_env_process(), &env, &err) == GH_OK) {
        named = strchr(env.driver, '/') != NULL;
    } else {
        fprintf(stderr, "graphhooks: %s; graphhooks env shows all\n", err.text);
    }

    if (json) {
        printf("{\"version\": \"%s\", \"abi\": \"%d.%d\", \"plugin_dir\": ",
               PACKAGE_VERSION, GH_ABI_MAJOR, GH_ABI_MINOR);
        print_string(PKGLIBDIR);
        families_print(true);
        printf(", \"drivers\": [");
    } else {
        printf("version   %s, ABI %d.%d\n", PACKAGE_VERSION, GH_ABI_MAJOR,
               GH_ABI_MINOR);
        families_print(false);
    }

    for (int i = 0; i < (named ? 3 : 2); i++) {
        found.kind = kinds[i];
        if (i == 0) {
            snprintf(found.path, sizeof(found.path), "libcuda.so.1");
        } else if (i == 1) {
            soft_path(found.path, sizeof(found.path));
        } else {
            memcpy(found.path, env.driver, sizeof(found.path));
        }
        look(&found);
        if (json) {
            printf("%s", i == 0 ? "\n  " : ",\n  ");
            print_json(&found);
        } else {
            print_text(&found);
        }
    }
    if (json) {
        printf("\n]}\n");
    }
}
