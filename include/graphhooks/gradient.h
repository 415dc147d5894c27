/*
 * graphhooks/gradient.h - a step's first gradient, and those that are added.
 *
 * A graph that adds gradients up has to find zeros where there is nothing yet,
 * and the host would fill each step what the graph then reads.  The kernel of
 * this call reads from the device whether its gradient is the first: then it is
 * written, and what was there is not read.  So one graph does for all
 * microbatches, and each moves as little memory as it can.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_GRADIENT_H
#define GRAPHHOOKS_GRADIENT_H

#include <graphhooks/session.h>

GH_BEGIN_DECLS

/** What gradients are made of.  Since 1.0. */
typedef uint32_t gh_number;
enum {
    GH_NUMBER_F32 = 1,
    GH_NUMBER_F16 = 2, /* IEEE binary16 */
    GH_NUMBER_BF16 = 3
};

/** A gradient.  Zero the struct, then set struct_size.  Since 1.0. */
typedef struct gh_gradient {
    uint32_t struct_size;
    gh_number number;      /* of both */
    void *sum;             /* device address, aligned to 16 bytes */
    const void *gradient;  /* the same; apart from the sum */
    uint64_t n;            /* elements of each, a multiple of 16 bytes, or 0 */
    const uint32_t *first; /* device address of a word, aligned to 4 bytes */
} gh_gradient;

/**
 * Add a gradient to a sum, or make it the sum: `sum[i] = gradient[i]`, bit for
 * bit, if the word at `first` is not 0 when the kernel runs, and else
 * `sum[i] + gradient[i]`.  Halves are added in single precision, and rounded to
 * the nearest, ties to even.  A sum that is NaN has all of its bits set but the
 * sign.
 *
 * One kernel on @p stream, which may be captured, in a pass that is recorded
 * too; the graph then reads the word in each launch.  The three stay the
 * host's, and live as long as the work, and any graph of it.
 *
 * @return GH_OK; GH_ERR_INVALID for NULL, a number that there is not, an
 * address or a length that is no multiple; GH_ERR_ABI or GH_ERR_UNSUPPORTED for
 *         a bad struct; GH_ERR_STATE when the session is closed, or disabled
 *         without a device; GH_ERR_DEVICE when the driver says so.
 * Blocks: never.  Threads: as gh_layer_enter.  Since: 1.0.
 */
GH_API gh_status gh_gradient_add(gh_session *session,
                                 const gh_gradient *gradient, void *stream,
                                 gh_error *err);

GH_END_DECLS

#endif
