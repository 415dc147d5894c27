/*
 * capacity.c - see capacity.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pass/capacity.h"

bool gh_capacity_holds(const gh_pass *pass, uint32_t i)
{
    const gh_buffer *input = &pass->inputs[i];
    const uint64_t capacity = pass->capacities[i];

    return capacity == 0 ||
           (capacity <= GH_MOST_CAPACITY &&
            (input->bytes == capacity ||
             (input->bytes < capacity &&
              (input->flags & GH_BUFFER_STATIC) == 0)));
}

bool gh_capacities_hold(const gh_pass *pass)
{
    for (uint32_t i = 0; pass->capacities != NULL && i < pass->n_inputs; i++) {
        if (!gh_capacity_holds(pass, i)) {
            return false;
        }
    }
    return true;
}
