/*
 * nodes.h - what a description says of the times of nodes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_NODES_H
#define BIN_NODES_H

#include "fields.h"
#include "orders.h"

/* "node_us" of a layer: [[forward, backward, weight gradient], ...].  Left out,
 * the times stay as they are. */
gh_status nodes_read(const struct fields *object, struct node_times *times,
                     gh_error *err);

#endif
