/*
 * stash.h - the rows of experts, kept in pages instead of in the sets.
 *
 * All layers of all sets then share one buffer for each kind of rows.  What a
 * backward reads is pushed once the forward has run, and popped before it.  So
 * passes must not run at the same time.  step/stasher.h makes one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_STASH_H
#define ENGINE_STASH_H

#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stash_tensor {
    float *rows;
    int cols;
};

enum {
    STASH_TENSORS = 4 /* the most of one push */
};

struct stash_move {
    uint32_t entry;
    bool pushes;
    int n;
    struct stash_tensor tensors[STASH_TENSORS];
    const int *count; /* device: of rows; NULL: all that there is room for */
    CUstream stream;
};

struct stash {
    int *count; /* device: rows of the current push */
    int room;   /* rows that a layer's entries have room for: of the longest
                   microbatch, so that shorter ones need a count */
    /* room x hidden, or x inner: see moe_buffers */
    float *dispatched, *wide, *gelu, *expert_out;
    float *d_expert_out, *d_dispatched, *d_wide;

    /* An entry is what one layer of one set keeps.  Returns 0, or -1:
     * dev->error. */
    int (*add)(void *user, int max_rows, uint32_t *entry_p);
    void (*remove)(void *user, uint32_t entry);
    /* In the stream's order.  A failure sticks to the device. */
    void (*move)(void *user, const struct stash_move *move);
    void *user;
};

#endif
