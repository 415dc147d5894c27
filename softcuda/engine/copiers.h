/*
 * copiers.h - the engines that copy beside compute, one for each direction.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_COPIERS_H
#define SOFTCUDA_COPIERS_H

#include "softcuda/engine/work.h"

#include <stdint.h>

enum way {
    WAY_OUT,    /* device to host */
    WAY_BACK,   /* host to device */
    WAY_WITHIN, /* device to device */
    WAY_NONE,   /* host to host: no engine */
    N_WAYS = WAY_NONE
};

enum way way_of(const struct work *work);

/* When work begins on the virtual clock if it is ready at `ready_ns` and takes
 * `cost_ns`.  A copy takes the first time in which its engine is idle for so
 * long.  Other work begins at once. */
uint64_t copiers_begin(const struct work *work, uint64_t ready_ns,
                       uint64_t cost_ns);

#endif
