/*
 * fake_device.c - see fake_device.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/fake_device.h"

#include "device/device.h"
#include "tap/tap.h"

/* And not left.  A thread of the library's stays in it to its end. */
static _Thread_local int n_entered;

struct gh_device_before gh_device_enter(struct gh_device *dev)
{
    (void)dev;
    n_entered++;
    return (struct gh_device_before){ NULL, 0 };
}

void gh_device_leave(struct gh_device *dev, struct gh_device_before before)
{
    (void)dev;
    (void)before;
    n_entered--;
}

int done_with_device(void)
{
    is_int(n_entered, 0,
           "the device was left as often as it was entered");
    return done_testing();
}
