/*
 * linear.h - what both directions of a part are made of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LINEAR_H
#define ENGINE_LINEAR_H

#include "parts.h"

/* y = x w + b, and + add when that is not NULL; x is rows x in. */
void linear_forward(const struct work *work, const float *x, int in, size_t w,
                    size_t b, const float *add, float *y, int out);

/* Adds to the gradients of w and b, and writes dx.  `b` may be NO_BIAS. */
void linear_backward(const struct work *work, const float *x, int in, size_t w,
                     size_t b, const float *dy, int out, float *dx);
#define NO_BIAS SIZE_MAX

/* The same, and adds `add` to dx; it may be dx itself. */
void linear_backward_add(const struct work *work, const float *x, int in,
                         size_t w, size_t b, const float *dy, int out,
                         const float *add, float *dx);

void gelu_forward(const struct work *work, const float *x, float *y, size_t n);
/* d is the gradient of y, then of x. */
void gelu_backward(const struct work *work, const float *x, float *d, size_t n);

/* One part.  x is what it reads, dy the gradient of what it wrote; the parts
 * between a router and its post read the set's, and ignore x. */
void mla_forward(const struct work *work, int layer, const float *x,
                 float *out);
void mla_backward(const struct work *work, int layer, const float *x,
                  const float *dy, float *dx);
void mamba_forward(const struct work *work, int layer, const float *x,
                   float *out);
void mamba_backward(const struct work *work, int layer, const float *x,
                    const float *dy, float *dx);
void moe_forward(const struct work *work, const struct part *part,
                 const float *x, float *out);
void moe_backward(const struct work *work, const struct part *part,
                  const float *x, const float *dy, float *dx);

void norm_forward(const struct work *work, const float *x, int cols,
                  size_t gamma, size_t beta, float *y, float *mean,
                  float *rstd);

/* dx = gradient through the norm, and + add when that is not NULL. */
void norm_backward(const struct work *work, const float *dy, const float *x,
                   int cols, size_t gamma, size_t beta, const float *mean,
                   const float *rstd, const float *add, float *dx);

/* The batch x heads products of attention, over strided views. */
struct view {
    const float *data;
    int ld, outer, inner; /* row pitch; pitch of the batch; of the heads */
};

/* A head's columns of a rows x (n * hidden) matrix, from column `first`. */
static inline struct view view_heads(const struct config *config,
                                     const float *data, int n, int first)
{
    return (struct view){ .data = data + first,
                          .ld = n * config->hidden,
                          .outer = config->seq * n * config->hidden,
                          .inner = config->hidden / config->heads };
}

/* The same where a row is ld wide and a head's columns are `head` apart. */
static inline struct view view_of(const struct config *config,
                                  const float *data, int ld, int head)
{
    return (struct view){
        .data = data, .ld = ld, .outer = config->seq * ld, .inner = head
    };
}

/* seq x seq scores for every head. */
static inline struct view view_scores(const struct config *config,
                                      const float *data)
{
    const int one = config->seq * config->seq;

    return (struct view){ .data = data,
                          .ld = config->seq,
                          .outer = config->heads * one,
                          .inner = one };
}

/* c = alpha a b, per head; n columns, sums of k. */
void heads_product(const struct work *work, enum gemm_form form, int n, int k,
                   enum gemm_causal causal, float alpha, struct view a,
                   struct view b, struct view c);

#endif
