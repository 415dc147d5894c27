/*
 * linear.c - linear layers, norms and per-head products, both ways.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/linear.h"

void linear_forward(const struct work *work, const float *x, int in, size_t w,
                    size_t b, const float *add, float *y, int out)
{
    const struct model *model = work->model;

    gemm(&work->queue, GEMM_NN,
         (struct gemm_args){
             .a = x,
             .b = model->w + w,
             .c = y,
             .bias = b == NO_BIAS ? NULL : model->w + b,
             .add = add,
             .m = config_rows(&model->config),
             .n = out,
             .k = in,
             .lda = in,
             .ldb = out,
             .ldc = out,
         });
}

void linear_dgrad(const struct work *work, const float *dy, int out, size_t w,
                  const float *add, float *dx, int in)
{
    const struct model *model = work->model;

    gemm(&work->queue, GEMM_NT,
         (struct gemm_args){
             .a = dy,
             .b = model->w + w,
             .c = dx,
             .add = add,
             .m = config_rows(&model->config),
             .n = in,
             .k = out,
             .lda = out,
             .ldb = out,
             .ldc = in,
         });
}

void linear_wgrad(const struct work *work, const float *x, int in,
                  const float *dy, int out, size_t w, size_t b)
{
    const struct model *model = work->model;
    const int rows = config_rows(&model->config);

    if (b != NO_BIAS) {
        LAUNCH(&work->queue, column_sum, column_sum_args,
               blocks_of((size_t)out, COLUMN_LANES), .x = dy,
               .sum = model->g + b, .rows = rows, .cols = out);
    }
    gemm(&work->queue, GEMM_TN,
         (struct gemm_args){
             .a = x,
             .b = dy,
             .c = model->g + w,
             .add = model->g + w,
             .m = in,
             .n = out,
             .k = rows,
             .lda = in,
             .ldb = out,
             .ldc = out,
         });
}

void norm_forward(const struct work *work, const float *x, int cols,
                  size_t gamma, size_t beta, float *y, float *mean, float *rstd)
{
    const struct model *model = work->model;
    const int rows = config_rows(&model->config);

    LAUNCH(&work->queue, layernorm_forward, layernorm_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .x = x,
           .gamma = model->w + gamma, .beta = model->w + beta, .y = y,
           .mean = mean, .rstd = rstd, .rows = rows, .cols = cols);
}

void norm_dgrad(const struct work *work, const float *dy, const float *x,
                int cols, size_t gamma, const float *mean, const float *rstd,
                const float *add, float *dx)
{
    const struct model *model = work->model;
    const int rows = config_rows(&model->config);

    LAUNCH(&work->queue, layernorm_backward, layernorm_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .dy = dy, .x = x,
           .gamma = model->w + gamma, .mean = mean, .rstd = rstd, .add = add,
           .dx = dx, .rows = rows, .cols = cols);
}

void norm_wgrad(const struct work *work, const float *dy, const float *x,
                int cols, size_t gamma, size_t beta, const float *mean,
                const float *rstd)
{
    const struct model *model = work->model;

    LAUNCH(&work->queue, layernorm_param_backward, layernorm_param_args,
           blocks_of((size_t)cols, COLUMN_LANES), .dy = dy, .x = x,
           .mean = mean, .rstd = rstd, .dgamma = model->g + gamma,
           .dbeta = model->g + beta, .rows = config_rows(&model->config),
           .cols = cols);
}

/* n is 0 if no rows have come to this rank's experts. */
void gelu_forward(const struct work *work, const float *x, float *y, size_t n)
{
    if (n == 0) {
        return;
    }
    LAUNCH(&work->queue, gelu_forward, gelu_args,
           blocks_of(n, gelu_forward_threads), .x = x, .y = y, .n = (int)n);
}

void gelu_backward(const struct work *work, const float *x, float *d, size_t n)
{
    if (n == 0) {
        return;
    }
    LAUNCH(&work->queue, gelu_backward, gelu_backward_args,
           blocks_of(n, gelu_backward_threads), .x = x, .d = d, .n = (int)n);
}

static void product_of_heads(const struct work *work, enum gemm_form form,
                             int n, int k, enum gemm_causal causal, float alpha,
                             bool add, struct view a, struct view b,
                             struct view c)
{
    const struct config *config = &work->model->config;

    gemm(&work->queue, form,
         (struct gemm_args){
             .a = a.data,
             .b = b.data,
             .c = (float *)(uintptr_t)c.data,
             .add = add ? c.data : NULL,
             .m = config->seq,
             .n = n,
             .k = k,
             .lda = a.ld,
             .ldb = b.ld,
             .ldc = c.ld,
             .outer = config->batch,
             .inner = config->heads,
             .a_outer = a.outer,
             .a_inner = a.inner,
             .b_outer = b.outer,
             .b_inner = b.inner,
             .c_outer = c.outer,
             .c_inner = c.inner,
             .causal = (int)causal,
             .alpha = alpha,
         });
}

void heads_product(const struct work *work, enum gemm_form form, int n, int k,
                   enum gemm_causal causal, float alpha, struct view a,
                   struct view b, struct view c)
{
    product_of_heads(work, form, n, k, causal, alpha, false, a, b, c);
}

void heads_product_sum(const struct work *work, enum gemm_form form, int n,
                       int k, bool add, struct view a, struct view b,
                       struct view c)
{
    product_of_heads(work, form, n, k, GEMM_FULL, 1.0f, add, a, b, c);
}
