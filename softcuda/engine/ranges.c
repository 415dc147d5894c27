/*
 * ranges.c - the table of reserved addresses, to which memory is mapped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/ranges.h"

#include <stdlib.h>

static struct range *all;
static uint64_t n_made, n_all;

bool range_add(uintptr_t base, size_t bytes)
{
    struct range *range = malloc(sizeof(*range));

    if (range == NULL) {
        return false;
    }
    *range = (struct range){ base, bytes, ++n_made, all };
    all = range;
    n_all++;
    return true;
}

void range_remove(struct range *range)
{
    struct range **at = &all;

    while (*at != range) {
        at = &(*at)->next;
    }
    *at = range->next;
    free(range);
    n_all--;
}

struct range *range_find(uintptr_t address)
{
    struct range *range = all;

    while (range != NULL && address - range->base >= range->bytes) {
        range = range->next;
    }
    return range;
}

uint64_t range_count(void)
{
    return n_all;
}
