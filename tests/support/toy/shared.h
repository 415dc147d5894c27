/*
 * shared.h - what the files of the toy have from each other.
 *
 * step.c comes first, and reaches down to pass.c, mischief.c, device.c and
 * kernels.c; session.c and controls.c are beside it.  A part is named by its
 * index in the model; what a microbatch has is in a set, that of its slot or a
 * spare one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_TOY_SHARED_H
#define SUPPORT_TOY_SHARED_H

#include "support/toy.h"

/* ---- kernels.c, device.c ------------------------------------------------- */

/* What cuModuleLoadData() takes. */
const void *toy_kernels(bool soft);

/* Whether the driver's entry has succeeded; toy->err says which has not. */
bool toy_called(struct toy *toy, CUresult result, const char *entry);
#define TOY_CALL(toy, entry, args) \
    toy_called((toy), (toy)->drv.entry args, #entry)

/* After a part, 0 being before the first; and the gradients of these. */
CUdeviceptr toy_act(const struct toy *toy, uint32_t set, uint32_t part);
CUdeviceptr toy_grad(const struct toy *toy, uint32_t set, uint32_t part);
/* The sum that the part's backward passes add to. */
CUdeviceptr toy_weight(const struct toy *toy, uint32_t set, uint32_t part);
/* An input, `which` 0, an output gradient, 1, and a spare, 2. */
CUdeviceptr toy_feed(const struct toy *toy, uint32_t which, uint32_t m);

/* ---- pass.c -------------------------------------------------------------- */

/* The parts of a pass, as the host would write them without the library. */
struct toy_work {
    uint32_t first, last; /* parts */
    gh_direction direction;
    uint32_t set;
    uint32_t lie; /* added to what forward parts add */
    bool weights; /* adds to the sums */
    bool keeps;   /* leaves its input in the set, for a later pass */
    bool forgets; /* its last part, forward */
    CUdeviceptr input;
    CUstream stream;
};

gh_status toy_run_segment(struct toy *toy, const gh_segment *s,
                          gh_direction direction, uint32_t m, CUstream stream);
/* All parts, without the library. */
bool toy_run_eagerly(struct toy *toy, gh_direction direction, uint32_t m,
                     CUstream stream);
/* Whether a segment's weight gradients are a pass of their own. */
bool toy_leaves_weights(const struct toy *toy, const gh_segment *s);

/* ---- mischief.c, step.c -------------------------------------------------- */

void toy_do_mischief(struct toy *toy, const gh_pass *pass, struct toy_work *w);
/* gh_layer_exit(), from this thread or from another one. */
gh_status toy_exit(struct toy *toy, const gh_pass *pass, bool other_thread);

/* Every word of toy_feed(). */
uint32_t toy_feed_value(uint32_t step, uint32_t m, uint32_t which);

#endif
