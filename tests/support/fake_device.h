/*
 * fake_device.h - a device that is entered and left for nothing, but counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_FAKE_DEVICE_H
#define SUPPORT_FAKE_DEVICE_H

#define DEVICE ((struct gh_device *)5)

/* done_testing(), after a point that says whether this thread has left the device
 * as often as it has entered it. */
int done_with_device(void);

#endif
