/*
 * nodes.h - small sets of numbers of nodes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_NODES_H
#define SOFTCUDA_NODES_H

#include <stdbool.h>
#include <stdint.h>

/* All zero is the empty set. */
struct nodes {
    uint32_t *v;
    uint32_t n, room;
};

/* Both are false when there is no memory. */
bool nodes_add(struct nodes *set, uint32_t node);
bool nodes_copy(struct nodes *to, const struct nodes *from);
void nodes_clear(struct nodes *set);

#endif
