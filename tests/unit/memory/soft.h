/*
 * soft.h - tests of lib/memory/ on the software device, which counts what is
 * allocated and fails on demand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UNIT_MEMORY_SOFT_H
#define UNIT_MEMORY_SOFT_H

#include "device/device.h"
#include "softcuda/softcuda.h"

#define SOFT_DEVICES 2

/* While soft_run() runs; the first one's context is current. */
extern struct gh_device *soft_devices[SOFT_DEVICES];

/* Runs the tests, or skips all where the software device is not to be had.
 * Returns the status of the program. */
int soft_run(void (*tests)(void));

softcuda_counts soft_now(void);
uint64_t soft_races(void); /* so far */
/* SOFTCUDA's settings, as softcuda.h describes them. */
void soft_configure(const char *settings);

#endif
