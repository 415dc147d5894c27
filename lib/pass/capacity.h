/*
 * capacity.h - whether the inputs of a pass have room in their capacities.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_CAPACITY_H
#define GH_PASS_CAPACITY_H

#include <graphhooks/layer.h>

#include <stdbool.h>

/* More than any device has, and so little that sums of aligned capacities do
 * not overflow. */
#define GH_MOST_CAPACITY (UINT64_C(1) << 48)

/* Whether no input has more bytes than its capacity, and no static one fewer. */
bool gh_capacities_hold(const gh_pass *pass);
/* The same of one input, of a pass that has capacities. */
bool gh_capacity_holds(const gh_pass *pass, uint32_t i);

#endif
