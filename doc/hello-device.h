/*
 * hello-device.h - the software device, as hello.c sees it.
 *
 * A host on a GPU has none of this: the driver's calls come from <cuda.h> and
 * -lcuda, its kernels are CUDA C, and nvcc compiles them.  Here the calls are
 * looked up in libgraphhooks-softcuda.so, and the kernels are C.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HELLO_DEVICE_H
#define HELLO_DEVICE_H

#include <softcuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 32 }; /* of a microbatch */

/* ---- the driver's calls -------------------------------------------------- */

#define DRIVER(ENTRY) \
    ENTRY(cuInit, unsigned flags) \
    ENTRY(cuDevicePrimaryCtxRetain, void **context_p, int device) \
    ENTRY(cuDevicePrimaryCtxRelease, int device) \
    ENTRY(cuCtxSetCurrent, void *context) \
    ENTRY(cuStreamCreate, void **stream_p, unsigned flags) \
    ENTRY(cuStreamSynchronize, void *stream) \
    ENTRY(cuStreamDestroy, void *stream) \
    ENTRY(cuMemAlloc, uint64_t *address_p, size_t bytes) \
    ENTRY(cuMemFree, uint64_t address) \
    ENTRY(cuMemcpyHtoDAsync, uint64_t to, const void *from, size_t bytes, \
          void *stream) \
    ENTRY(cuMemcpyDtoH, void *to, uint64_t from, size_t bytes) \
    ENTRY(cuModuleLoadData, void **module_p, const void *image) \
    ENTRY(cuModuleUnload, void *module) \
    ENTRY(cuModuleGetFunction, void **function_p, void *module, \
          const char *name) \
    ENTRY(cuLaunchKernel, void *function, unsigned grid_x, unsigned grid_y, \
          unsigned grid_z, unsigned block_x, unsigned block_y, \
          unsigned block_z, unsigned shared_bytes, void *stream, \
          void **params, void **extra)

#define DECLARE(name, ...) static int (*name)(__VA_ARGS__);
DRIVER(DECLARE)

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "hello: %s: %s\n", what, why);
    exit(1);
}

/* For driver calls outside of passes. */
#define MUST(call) must(call, #call)

static void must(int code, const char *call)
{
    char why[32];

    if (code != 0) {
        snprintf(why, sizeof(why), "driver error %d", code);
        stop(call, why);
    }
}

#define FIND(name, ...) MUST(find(#name, (void **)&name, 12000, 0, NULL));

static void find_driver(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*find)(const char *name, void **entry_p, int version, uint64_t flags,
                int *status_p);

    if (library == NULL) {
        stop("the software device, whose path is the argument", dlerror());
    }
    *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    DRIVER(FIND)
}

/* ---- the kernels --------------------------------------------------------- */

/* A kernel runs by name_run.  name_touch says which bytes that reads and
 * writes, so that the device can report a wait that is missing. */
#define UNUSED __attribute__((unused))
#define RUN(name) \
    static void name##_run(UNUSED const softcuda_launch *launch, \
                           void *const *params)
#define TOUCH(name) \
    static void name##_touch(UNUSED const softcuda_launch *launch, \
                             void *const *params, softcuda_touch_fn touch, \
                             void *sink)
#define ARG(i) (*(float **)params[i])
#define READS(i, n) touch(sink, ARG(i), (n) * sizeof(float), SOFTCUDA_READ)
#define WRITES(i, n) touch(sink, ARG(i), (n) * sizeof(float), SOFTCUDA_WRITE)

TOUCH(forward) { READS(0, 2), READS(1, SAMPLES), WRITES(2, SAMPLES); }
RUN(forward) /* weights, x, y: writes y */
{
    for (int i = 0; i < SAMPLES; i++) {
        ARG(2)[i] = ARG(0)[0] * ARG(1)[i] + ARG(0)[1];
    }
}

TOUCH(backward)
{
    READS(0, 2), READS(1, SAMPLES), READS(2, SAMPLES), READS(4, 2);
    WRITES(3, SAMPLES), WRITES(4, 2);
}
RUN(backward) /* weights, x, dy, dx, dweights: writes dx, adds to dweights */
{
    for (int i = 0; i < SAMPLES; i++) {
        ARG(3)[i] = ARG(0)[0] * ARG(2)[i];
        ARG(4)[0] += ARG(1)[i] * ARG(2)[i];
        ARG(4)[1] += ARG(2)[i];
    }
}

TOUCH(loss)
{
    READS(0, SAMPLES), READS(1, SAMPLES), WRITES(2, SAMPLES), WRITES(3, 1);
}
RUN(loss) /* y, target, dy, loss: writes dy and loss */
{
    *ARG(3) = 0;
    for (int i = 0; i < SAMPLES; i++) {
        ARG(2)[i] = (ARG(0)[i] - ARG(1)[i]) / SAMPLES;
        *ARG(3) += ARG(2)[i] * ARG(2)[i] * SAMPLES / 2;
    }
}

TOUCH(update) { READS(0, 2), READS(1, 2), WRITES(0, 2), WRITES(1, 2); }
RUN(update) /* weights, dweights: steps down, and clears dweights */
{
    for (int i = 0; i < 2; i++) {
        ARG(0)[i] -= 0.05F * ARG(1)[i];
        ARG(1)[i] = 0;
    }
}

enum kernel { FORWARD, BACKWARD, LOSS, UPDATE, KERNELS };
static const uint32_t pointers[] = { 8, 8, 8, 8, 8 };
static const softcuda_kernel kernels[] = {
    { "forward", 3, pointers, forward_run, forward_touch, NULL },
    { "backward", 5, pointers, backward_run, backward_touch, NULL },
    { "loss", 4, pointers, loss_run, loss_touch, NULL },
    { "update", 2, pointers, update_run, update_touch, NULL },
};
static const softcuda_image image = { SOFTCUDA_IMAGE_MAGIC, KERNELS, 0,
                                      kernels };
static void *context, *module, *functions[KERNELS];

static void open_device(const char *path)
{
    find_driver(path);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, &image));
    for (int k = 0; k < KERNELS; k++) {
        MUST(cuModuleGetFunction(&functions[k], module, kernels[k].name));
    }
}

static void close_device(void)
{
    MUST(cuModuleUnload(module));
    MUST(cuDevicePrimaryCtxRelease(0));
}

/* Issues one kernel; returns the driver's code, 0 for success. */
static int launch(enum kernel kernel, void *stream, void *a, void *b, void *c,
                  void *d, void *e)
{
    void *params[] = { &a, &b, &c, &d, &e };

    return cuLaunchKernel(functions[kernel], 1, 1, 1, 1, 1, 1, 0, stream,
                          params, NULL);
}

#endif
