/*
 * shared.h - what the files of the pair have from each other.
 *
 * step.c and life.c come first, and reach down to node.c, pass.c, groups.c,
 * device.c and parts.c.  A part is named by its index in the model, `q`; what
 * a microbatch has is in a set, that of its slot or one of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_PAIR_SHARED_H
#define SUPPORT_PAIR_SHARED_H

#include "support/pair.h"
#include "support/toy/shared.h"

#define PAIR_ELEMS 4u
#define PAIR_SLOTS 4u
#define PAIR_STRIDE 256u

/* ---- parts.c ------------------------------------------------------------- */

void pair_add_layer(struct pair *p, uint32_t layer);
/* The layers as the library is told of them. */
gh_model *pair_describe(const struct pair *p);
uint32_t pair_chunks(const struct pair *p);
bool pair_begins_chunk(const struct pair *p, uint32_t q);
bool pair_ends_chunk(const struct pair *p, uint32_t q);
/* Whether a depth of prediction begins with the part. */
bool pair_begins_depth(const struct pair *p, uint32_t q);
bool pair_is_exchange(gh_part part);
bool pair_has_weights(gh_part part);
uint32_t pair_part_at(const struct pair *p, uint32_t layer, gh_part part);
/* The part that a node of the layer ends with, or begins with. */
uint32_t pair_border(const struct pair *p, uint32_t layer, uint32_t node,
                     bool last);

/* ---- device.c ------------------------------------------------------------ */

/* A pass as it is issued. */
struct pair_work {
    uint32_t first, last; /* parts */
    uint32_t set, chunk;
    gh_direction direction;
    bool weights;
    CUdeviceptr input;
    CUstream stream;
};

/* Of a set: by part what it writes, and the gradient of what it reads; by
 * layer the residual and its gradient; by chunk what comes from outside.  After
 * the sets: the weights, and what chunks hand on. */
enum pair_place {
    AT_OUT,
    AT_GRAD,
    AT_RESIDUAL,
    AT_RESIDUAL_GRAD,
    AT_DEPTH, /* what a depth begins with, and the gradient before it */
    AT_DEPTH_GRAD,
    AT_INPUT,
    AT_OUTPUT_GRAD,
    AT_PLACES
};

/* d = f * a + b + k; b 0: nothing. */
bool pair_mix(struct pair *p, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
              uint32_t f, uint32_t k, CUstream stream);
CUstream pair_compute(const struct pair *p);

uint64_t pair_memory_bytes(void);
CUdeviceptr pair_at(const struct pair *p, uint32_t set, enum pair_place place,
                    uint32_t i);
CUdeviceptr pair_weight(const struct pair *p, uint32_t q);
/* The input of a chunk, or the gradient of its output. */
CUdeviceptr pair_feed_at(const struct pair *p, bool forward, uint32_t chunk,
                         uint32_t m);

/* What a part writes: memory that its reader is to lend, or its own. */
CUdeviceptr pair_output_of(const struct pair *p, uint32_t set, uint32_t q);
CUdeviceptr pair_input_of(const struct pair *p, const struct pair_work *w,
                          uint32_t q);
/* The gradient of what a part writes. */
CUdeviceptr pair_gradient_after(const struct pair *p, uint32_t set, uint32_t q);

/* ---- groups.c ------------------------------------------------------------ */

/* How many groups a part keeps, and their modules. */
uint32_t pair_groups_of(const struct pair *p, uint32_t q,
                        const uint32_t **modules_p);
/* Whether the group is in memory of the host's own. */
bool pair_is_lent(const struct pair *p, uint32_t q, uint32_t g);
/* Of a group's tensor. */
uint32_t pair_words(const struct pair *p);
/* How much a tensor is above what the part reads. */
uint32_t pair_above(const struct pair *p, uint32_t q, uint32_t g);
/* The part's groups of its input `x`, added to its output `y`. */
bool pair_keep_groups(struct pair *p, const struct pair_work *w, uint32_t q,
                      CUdeviceptr x, CUdeviceptr y);
/* The first group is of the weights, the other one of the gradient. */
bool pair_read_group(struct pair *p, const struct pair_work *w, uint32_t q,
                     uint32_t g, CUdeviceptr into);

/* ---- pass.c, node.c, step.c ---------------------------------------------- */

/* GH_ERR_DEVICE, with the text. */
gh_status pair_fail(gh_error *err, const char *text);
gh_status pair_run_segment(struct pair *p, const gh_segment *s,
                           const gh_overlap_node *node, gh_error *err);
/* gh_overlap_pair.run_node */
gh_status pair_run_node(void *user, const gh_overlap_node *node, gh_error *err);
/* Adds what a microbatch must add to the weights. */
void pair_expect(struct pair *p, uint32_t m);

#endif
