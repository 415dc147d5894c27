/*
 * shared.h - what the files of the saver have from each other.
 *
 * step.c and life.c come first, and reach down to pass.c, groups.c and
 * device.c.  A part is named by its index in the model; what a microbatch has
 * is in a set, that of its slot or one of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SAVER_SHARED_H
#define SUPPORT_SAVER_SHARED_H

#include "support/saver.h"

/* ---- device.c ------------------------------------------------------------ */

#define SAVER_CALL(sv, entry, args) ((sv)->toy.drv.entry args == CUDA_SUCCESS)

bool saver_make_memory(struct saver *sv);
/* The borders are those of the parts, from 0 to n_parts. */
CUdeviceptr saver_act(const struct saver *sv, uint32_t set, uint32_t border);
CUdeviceptr saver_grad(const struct saver *sv, uint32_t set, uint32_t border);
/* Of group k of a part; all of a set lie side by side. */
CUdeviceptr saver_sum(const struct saver *sv, uint32_t set, uint32_t part,
                      uint32_t k);
uint32_t saver_n_sums(const struct saver *sv);
uint64_t saver_sums_bytes(const struct saver *sv);
/* The input of a microbatch, or the gradient of its output. */
CUdeviceptr saver_feed(const struct saver *sv, gh_direction d, uint32_t m);

/* Each step a microbatch is on another stream. */
CUstream saver_stream(const struct saver *sv, uint32_t m);
/* What a microbatch has of its own, another one on another stream: five are in
 * flight at most. */
uint32_t saver_own(const struct saver *sv, uint32_t m);

/* toy_mix() and toy_add(). */
bool saver_mix(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t f, uint32_t k, uint32_t n, CUstream stream);
bool saver_add(struct saver *sv, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t n, CUstream stream);

/* ---- groups.c ------------------------------------------------------------ */

/* A pass as it is issued. */
struct saver_work {
    uint32_t first, last; /* parts */
    gh_direction direction;
    uint32_t m, set, n; /* n: words of the microbatch */
    bool evaluates;
    CUdeviceptr input;
    CUstream stream;
};

/* What the host does next. */
enum saver_outcome {
    GOES_ON,
    AGAIN,
    STOPS,
    FAILS
};

struct saver_group {
    uint32_t layer, k, n_tensors;
    gh_offload_tensor tensors[SAVER_MAX_TENSORS];
    struct lent_block *block; /* of the host's own; NULL: the library's */
};

/* How many groups of a layer a pass saves. */
uint32_t saver_groups(const struct saver *sv, bool evaluates);
/* Of tensor t, where the first has n. */
uint32_t saver_words(uint32_t n, uint32_t t);
/* How much the tensor is above what the part reads. */
uint32_t saver_constant(const struct saver *sv, uint32_t part, uint32_t k,
                        uint32_t t);

/* Asks the watch, before the first part. */
enum saver_outcome saver_begin_parts(struct saver *sv,
                                     const struct saver_work *w);
/* gh_offload_save or _load: where the group is. */
enum saver_outcome saver_place(struct saver *sv, struct saver_group *group,
                               const struct saver_work *w);
/* gh_offload_commit or _release, at once or with saver_let_all_go(). */
enum saver_outcome saver_let_go(struct saver *sv,
                                const struct saver_group *group,
                                const struct saver_work *w);
enum saver_outcome saver_let_all_go(struct saver *sv,
                                    const struct saver_work *w);

/* The group's tensors of the part's input, their addition to its output, and
 * to the gradient and the sum of the group. */
bool saver_write_group(struct saver *sv, const struct saver_group *group,
                       const struct saver_work *w, uint32_t part,
                       CUdeviceptr x);
bool saver_use_group(struct saver *sv, const struct saver_group *group,
                     const struct saver_work *w, CUdeviceptr y);
bool saver_add_group(struct saver *sv, const struct saver_group *group,
                     const struct saver_work *w, uint32_t part, CUdeviceptr g);

/* Whether the group stays open until the layer's other part. */
bool saver_goes_across(const struct saver *sv, gh_direction direction,
                       uint32_t k);
void saver_keep_across(struct saver *sv, const struct saver_group *group,
                       const struct saver_work *w, uint32_t part);
/* Of what a replayed pass has saved or loaded. */
void saver_find_across(struct saver *sv, const struct saver_work *w);

/* ---- pass.c, expect.c ---------------------------------------------------- */

gh_status saver_run_segment(struct saver *sv, const gh_segment *s,
                            gh_direction direction, uint32_t m, bool evaluates);

/* Every word of what a microbatch is fed with. */
uint32_t saver_fed(const struct saver *sv, gh_direction d, uint32_t m);
/* Adds what the microbatches of a step must add to the sums. */
void saver_expect(struct saver *sv, uint32_t microbatches);
/* Keeps the device's sums, or writes those that were kept. */
void saver_copy_sums(struct saver *sv, bool save);

#endif
