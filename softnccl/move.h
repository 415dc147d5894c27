/*
 * move.h - what an operation does to the memory of its ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_MOVE_H
#define SOFTNCCL_MOVE_H

#include "softnccl/match.h"

/* False, and nothing is done, when memory is not there. */
bool move_match(const struct match *match, softcuda_rendezvous *rendezvous,
                uint64_t *bytes_p);

#endif
