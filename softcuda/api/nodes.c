/*
 * nodes.c - small sets of numbers of nodes.
 *
 * A stream that captures keeps a set of the nodes that its next node comes
 * after.  So do every node, and every event that was recorded in a capture.  A
 * set has few members, so it is searched one by one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/nodes.h"

#include <stdlib.h>

bool nodes_add(struct nodes *set, uint32_t node)
{
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->v[i] == node) {
            return true;
        }
    }
    if (set->n == set->room) {
        uint32_t room = set->room ? set->room * 2 : 4;
        uint32_t *larger = realloc(set->v, room * sizeof(*larger));

        if (larger == NULL) {
            return false;
        }
        set->v = larger;
        set->room = room;
    }
    set->v[set->n++] = node;
    return true;
}

bool nodes_copy(struct nodes *to, const struct nodes *from)
{
    to->n = 0;
    for (uint32_t i = 0; i < from->n; i++) {
        if (!nodes_add(to, from->v[i])) {
            return false;
        }
    }
    return true;
}

void nodes_clear(struct nodes *set)
{
    free(set->v);
    *set = (struct nodes){ NULL, 0, 0 };
}
