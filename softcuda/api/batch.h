/*
 * batch.h - several copies in one call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_BATCH_H
#define SOFTCUDA_BATCH_H

#include "driver/driver.h"

#include <stddef.h>

/* The layout of CUmemcpyAttributes. */
struct copy_attributes {
    int order; /* when the source is read: 1 to 3 */
    struct {
        int type, id;
    } source, target; /* hints */
    unsigned int flags;
};

struct batch {
    const CUdeviceptr *dsts, *srcs;
    const size_t *sizes;
    size_t count;
    const struct copy_attributes *attributes;
    const size_t *indexes; /* the first copy that each is for */
    size_t n_attributes;
};

/* `fail_p` may be NULL.  It gets the number of the wrong copy, or SIZE_MAX. */
CUresult mem_batch(const struct batch *batch, size_t *fail_p, CUstream stream);

#endif
