/*
 * numa.h - host memory near a device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_MEMORY_NUMA_H
#define GH_MEMORY_NUMA_H

#include <stdbool.h>

#define GH_NUMA_UNKNOWN (-1)

/* The NUMA node of a device on the PCI bus, such as "0000:3b:00.0".  The kernel
 * lists it below `sysfs`, which is "/sys"; GH_NUMA_UNKNOWN: it does not say. */
int gh_numa_node_of(const char *sysfs, const char *bus_id);

/* What the thread's allocations preferred before gh_numa_begin(). */
struct gh_numa_before {
    bool changed;
    int mode;
    unsigned long nodes[16];
};

/* Until gh_numa_end() memory that this thread touches first comes from the
 * node, if it has any.  `changed` is false if the kernel refuses or the node is
 * unknown; errno then says why. */
struct gh_numa_before gh_numa_begin(int node);
void gh_numa_end(const struct gh_numa_before *before);

#endif
