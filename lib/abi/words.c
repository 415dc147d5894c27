/*
 * words.c - words of the host's memory, compared at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/words.h>

uint32_t gh_words_compare(const uint64_t *const *addresses,
                          const uint64_t *values, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && *addresses[i] == values[i]) {
        i++;
    }
    return i;
}
