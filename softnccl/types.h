/*
 * types.h - NCCL's data types and reductions, as C.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTNCCL_TYPES_H
#define SOFTNCCL_TYPES_H

#include "driver/nccl.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes of one; 0: there is no such type here. */
size_t type_bytes(ncclDataType_t type);
const char *type_name(ncclDataType_t type);
/* NULL: there is no such reduction. */
const char *op_name(ncclRedOp_t op);

/* into[i] = into[i] op from[i] */
void type_reduce(ncclDataType_t type, ncclRedOp_t op, void *into,
                 const void *from, size_t count);
/* The end of an average over n: into[i] / n. */
void type_divide(ncclDataType_t type, void *into, size_t count, int n);

#endif
