/*
 * shared.h - what the files of the toy have from each other.
 *
 * step.c comes first, and reaches down to pass.c, groups.c, mischief.c,
 * expect.c, device.c and kernels.c; session.c and controls.c are beside it.  A
 * part is named by its index in the model; what a microbatch has is in a set,
 * that of its slot or one of its own.
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
/* An input that is shorter than its shape, with zeros behind it. */
CUdeviceptr toy_padded(const struct toy *toy, uint32_t set, gh_direction d);
/* The sum that the part's backward passes add to, or of its group k; all of a
 * set lie side by side, and set behind set. */
CUdeviceptr toy_sum(const struct toy *toy, uint32_t set, uint32_t part,
                    uint32_t k);
uint32_t toy_n_sums(const struct toy *toy);
uint64_t toy_sums_bytes(const struct toy *toy); /* of all sets */
/* An input, `which` 0, an output gradient, 1, and a spare, 2. */
CUdeviceptr toy_feed(const struct toy *toy, uint32_t which, uint32_t i);
/* What is added to toy_feed_value(), so that each word is another one. */
CUdeviceptr toy_ramp(const struct toy *toy);

/* Each step a microbatch is on another stream. */
CUstream toy_stream(const struct toy *toy, uint32_t m);
/* The feeds, or the set, that a microbatch has of its own, another one on
 * another stream. */
uint32_t toy_own(const struct toy *toy, uint32_t m);

/* toy_mix() and toy_add() of the toy's own. */
bool toy_mixes(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t f, uint32_t k, uint32_t n, CUstream stream);
bool toy_adds(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
              uint32_t n, CUstream stream);

/* ---- pass.c -------------------------------------------------------------- */

/* A pass as it is issued. */
struct toy_work {
    uint32_t first, last; /* parts */
    gh_direction direction;
    uint32_t m, set, n; /* n: words of the microbatch */
    uint32_t lie; /* added to what forward parts add */
    bool weights; /* adds to the sums */
    bool keeps;   /* leaves its input in the set, for a later pass */
    bool forgets; /* its last part, forward */
    bool evaluates;
    CUdeviceptr input;
    CUstream stream;
};

gh_status toy_run_segment(struct toy *toy, const gh_segment *s,
                          gh_direction direction, uint32_t m, CUstream stream,
                          bool evaluates);
/* All parts, without the library. */
bool toy_run_eagerly(struct toy *toy, gh_direction direction, uint32_t m,
                     CUstream stream);
/* Whether a segment's weight gradients are a pass of their own. */
bool toy_leaves_weights(const struct toy *toy, const gh_segment *s);
/* Words that a microbatch has, and those of them that it is fed. */
uint32_t toy_words(const struct toy *toy, uint32_t m);
uint32_t toy_fed_words(const struct toy *toy, uint32_t m);

/* ---- groups.c ------------------------------------------------------------ */

/* What the host does next. */
enum toy_outcome {
    GOES_ON,
    AGAIN,
    STOPS,
    FAILS
};

struct toy_group {
    uint32_t layer, k, n_tensors;
    gh_offload_tensor tensors[TOY_MAX_TENSORS];
    struct lent_block *block; /* of the host's own; NULL: the library's */
};

/* How many groups of a layer a pass saves. */
uint32_t toy_groups(const struct toy *toy, bool evaluates);
/* Of tensor t, where the first has n. */
uint32_t toy_tensor_words(uint32_t n, uint32_t t);
/* How much the tensor is above what the part reads. */
uint32_t toy_constant(const struct toy *toy, uint32_t part, uint32_t k,
                      uint32_t t);

/* Asks the watch, before the first part. */
enum toy_outcome toy_begin_parts(struct toy *toy, const struct toy_work *w);
/* The groups of a part's input `x`, added to its output `y`. */
enum toy_outcome toy_save_groups(struct toy *toy, const struct toy_work *w,
                                 uint32_t part, CUdeviceptr x, CUdeviceptr y);
/* The groups of a part, added to its gradient and to their sums. */
enum toy_outcome toy_load_groups(struct toy *toy, const struct toy_work *w,
                                 uint32_t part, CUdeviceptr g);
/* gh_offload_commit or _release of those that waited for it. */
enum toy_outcome toy_end_groups(struct toy *toy, const struct toy_work *w);
/* Of what a replayed pass has saved or loaded. */
void toy_find_across(struct toy *toy, const struct toy_work *w);

/* ---- mischief.c, expect.c ------------------------------------------------ */

void toy_do_mischief(struct toy *toy, const gh_pass *pass, struct toy_work *w);
/* gh_layer_exit(), from this thread or from another one. */
gh_status toy_exit(struct toy *toy, const gh_pass *pass, bool other_thread);

/* What a word of toy_feed() is made of: that of all, and its own. */
uint32_t toy_feed_value(const struct toy *toy, uint32_t m, uint32_t which);
uint32_t toy_ramp_value(uint32_t i);
/* Adds what a microbatch must add to the sums. */
void toy_expect(struct toy *toy, uint32_t m);
/* Keeps the device's sums and the expected ones, or writes those back. */
void toy_keep_sums(struct toy *toy);
void toy_restore_sums(struct toy *toy);

#endif
