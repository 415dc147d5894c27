/*
 * numa.c - see numa.h.
 *
 * It calls the kernel directly, because libnuma would be another library to
 * depend on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "memory/numa.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From <linux/mempolicy.h>, which not every machine has. */
#define MPOL_PREFERRED 1
#define BITS (sizeof(unsigned long) * CHAR_BIT)
#define MOST_NODES (16 * BITS)

int gh_numa_node_of(const char *sysfs, const char *bus_id)
{
    char path[4096], text[16] = "", lower[32] = "", *end;
    ssize_t bytes;
    long node;
    int file;

    for (size_t i = 0; bus_id[i] != '\0' && i + 1 < sizeof(lower); i++) {
        lower[i] = (char)tolower((unsigned char)bus_id[i]);
    }
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", sysfs,
             lower);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return GH_NUMA_UNKNOWN;
    }
    bytes = read(file, text, sizeof(text) - 1);
    close(file);
    if (bytes < 0) {
        return GH_NUMA_UNKNOWN;
    }
    node = strtol(text, &end, 10);
    /* A machine with one node says -1. */
    return end != text && (*end == '\n' || *end == '\0') && node >= 0 &&
                   node < (long)MOST_NODES
               ? (int)node
               : GH_NUMA_UNKNOWN;
}

struct gh_numa_before gh_numa_begin(int node)
{
    struct gh_numa_before before = { .changed = false };
    unsigned long nodes[16] = { 0 };

    if (node < 0 || node >= (int)MOST_NODES) {
        errno = EINVAL;
        return before;
    }
#if defined(SYS_get_mempolicy) && defined(SYS_set_mempolicy)
    nodes[(size_t)node / BITS] = 1ul << ((size_t)node % BITS);
    before.changed = syscall(SYS_get_mempolicy, &before.mode, before.nodes,
                             MOST_NODES + 1, NULL, 0ul) == 0 &&
                     syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes,
                             MOST_NODES + 1) == 0;
#else
    (void)nodes;
    errno = ENOSYS;
#endif
    return before;
}

void gh_numa_end(const struct gh_numa_before *before)
{
#if defined(SYS_get_mempolicy) && defined(SYS_set_mempolicy)
    if (before->changed) {
        (void)syscall(SYS_set_mempolicy, before->mode, before->nodes,
                      MOST_NODES + 1);
    }
#else
    (void)before;
#endif
}
