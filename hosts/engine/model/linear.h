/*
 * linear.h - what forward and backward of a part are made of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_LINEAR_H
#define ENGINE_LINEAR_H

#include "model/parts.h"

/* y = x w + b + add; `add` may be NULL.  x is rows x in. */
void linear_forward(const struct work *work, const float *x, int in, size_t w,
                    size_t b, const float *add, float *y, int out);

/* Backward comes in two halves.  dgrad makes dx from dy and adds `add`, which
 * may be NULL, or dx itself.  wgrad adds to the gradients of w and b, from x
 * and dy.  `b` may be NO_BIAS. */
void linear_dgrad(const struct work *work, const float *dy, int out, size_t w,
                  const float *add, float *dx, int in);
void linear_wgrad(const struct work *work, const float *x, int in,
                  const float *dy, int out, size_t w, size_t b);
#define NO_BIAS SIZE_MAX

void gelu_forward(const struct work *work, const float *x, float *y, size_t n);
/* d is the gradient of y before, and of x afterwards. */
void gelu_backward(const struct work *work, const float *x, float *d, size_t n);

void norm_forward(const struct work *work, const float *x, int cols,
                  size_t gamma, size_t beta, float *y, float *mean,
                  float *rstd);
void norm_dgrad(const struct work *work, const float *dy, const float *x,
                int cols, size_t gamma, const float *mean, const float *rstd,
                const float *add, float *dx);
void norm_wgrad(const struct work *work, const float *dy, const float *x,
                int cols, size_t gamma, size_t beta, const float *mean,
                const float *rstd);

/* The functions of one part.  x is what it reads, and dy the gradient of what
 * it wrote.  The parts between a router and its post read from the set, and
 * ignore x.  dgrad leaves in the set what wgrad reads. */
void mla_forward(const struct work *work, int layer, const float *x,
                 float *out);
void mla_dgrad(const struct work *work, int layer, const float *x,
               const float *dy, float *dx);
void mla_wgrad(const struct work *work, int layer, const float *x,
               const float *dy);
void mamba_forward(const struct work *work, int layer, const float *x,
                   float *out);
void mamba_dgrad(const struct work *work, int layer, const float *x,
                 const float *dy, float *dx);
void mamba_wgrad(const struct work *work, int layer, const float *x,
                 const float *dy);
void moe_forward(const struct work *work, const struct part *part,
                 const float *x, float *out);
void moe_dgrad(const struct work *work, const struct part *part, const float *x,
               const float *dy, float *dx);
void moe_wgrad(const struct work *work, const struct part *part,
               const float *x);

/* C = A B for every expert; the rows of A and C are slots, and B is a weight.
 * With GEMM_TN C is the weight, which is added to, and m is its rows. */
struct product {
    enum gemm_form form;
    const float *a, *b;
    float *c;
    int m, n, k;
};

void experts_product(const struct work *work, const struct moe_buffers *buffers,
                     const struct product *product);

/* A strided view, for the products of attention in every batch and head. */
struct view {
    const float *data;
    int ld, outer, inner; /* pitch of rows, of the batch, of the heads */
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

/* The columns of a head, if a row is `ld` wide and heads are `head` columns
 * apart. */
static inline struct view view_of(const struct config *config,
                                  const float *data, int ld, int head)
{
    return (struct view){
        .data = data, .ld = ld, .outer = config->seq * ld, .inner = head
    };
}

/* The seq x seq scores of every head. */
static inline struct view view_scores(const struct config *config,
                                      const float *data)
{
    const int one = config->seq * config->seq;

    return (struct view){ .data = data,
                          .ld = config->seq,
                          .outer = config->heads * one,
                          .inner = one };
}

/* c = alpha a b for each head, with n columns and sums of k. */
void heads_product(const struct work *work, enum gemm_form form, int n, int k,
                   enum gemm_causal causal, float alpha, struct view a,
                   struct view b, struct view c);
/* c = a b, or c += a b. */
void heads_product_sum(const struct work *work, enum gemm_form form, int n,
                       int k, bool add, struct view a, struct view b,
                       struct view c);

#endif
