/*
 * immediate.h - a driver that does everything at once, in the order issued.
 *
 * The least that a device can be: memory is malloc, a launch runs the kernel
 * before it returns, streams and events are nothing.  The engine's own
 * mathematics are tested on it, without an emulator in between.  It has no
 * capture and no graphs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_ENGINE_IMMEDIATE_H
#define TESTS_ENGINE_IMMEDIATE_H

#include "driver/driver.h"

void immediate_driver(struct driver *drv);

/* Ranges that the last launches wrote outside what they declared: none may.
 * Only memory from cuMemAlloc is looked at. */
void immediate_check_touches(int on);
unsigned immediate_violations(void);

#endif
