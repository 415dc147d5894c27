/*
 * device.h - the engine's device: a driver, its context, the kernels.
 *
 * A failure sticks: the first driver call that fails is written down with its
 * code and name, and every later call through DEVICE_CALL does nothing until
 * device_forgive().  So a straight line of launches needs one check at its
 * end, and the sentence that a person reads is about the call that broke.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_DEVICE_H
#define ENGINE_DEVICE_H

#include "driver/driver.h"
#include "kernels/kernels.h"

#include <stdbool.h>

/* What is opened if nobody names another driver. */
#define DEVICE_CUDA "libcuda.so.1"

struct device {
    struct driver drv;
    const char *path; /* the driver's file; owned by the caller */
    bool soft;
    CUdevice id;
    bool retained;
    CUcontext context;
    CUmodule module;
    CUfunction kernels[KERNEL_COUNT];
    int multiprocessors;
    char name[128];
    CUresult code;   /* of the first failure; 0: none so far */
    char error[256]; /* the sentence of that failure */
};

/* A device and one of its streams, to which work goes. */
struct queue {
    struct device *dev;
    CUstream stream;
};

/**
 * Load the driver at `path` and take a device of it: the first, or for one of
 * several ranks the device of its number, which begin anew after the last.  A
 * driver with the controls of softcuda.h is the software device: there kernels
 * are C.
 *
 * @return 0, or -1 with dev->error set; close it either way.
 */
int device_open(struct device *dev, const char *path, int ordinal);

/* Takes the first device of a driver whose table is already filled. */
int device_open_driver(struct device *dev, bool soft);

void device_close(struct device *dev);

/* Notes a failure of something other than the driver, with its own sentence.
 * Returns -1. */
int device_fail(struct device *dev, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Notes a failure.  Returns 0 if code is CUDA_SUCCESS, else -1. */
int device_check(struct device *dev, const char *entry, CUresult code);
void device_forgive(struct device *dev);

/* Calls the driver unless something has failed already. */
#define DEVICE_CALL(device, entry, ...) \
    ((device)->code != CUDA_SUCCESS \
         ? -1 \
         : device_check(device, #entry, (device)->drv.entry(__VA_ARGS__)))

/* Returns NULL once something has failed.  Frees take NULL and never fail. */
void *device_alloc(struct device *dev, size_t bytes);
void device_free(struct device *dev, void *address);
void *device_alloc_host(struct device *dev, size_t bytes);
void device_free_host(struct device *dev, void *address);

int device_synchronize(struct device *dev, CUstream stream);

void device_launch(const struct queue *queue, enum engine_kernel kernel,
                   size_t grid_x, size_t grid_y, size_t grid_z,
                   const void *args);

/* LAUNCH(queue, kernel, args, grid, .field = value, ...) */
#define LAUNCH(queue, kernel, args, grid, ...) \
    device_launch(queue, KERNEL_##kernel, (size_t)(grid), 1, 1, \
                  &(const struct args){ __VA_ARGS__ })

static inline CUdeviceptr device_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline size_t blocks_of(size_t count, size_t per_block)
{
    return (count + per_block - 1) / per_block;
}

#endif
