/*
 * mamba.c - a Mamba layer, both ways: in, convolve, scan, gate, out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "linear.h"

/* What every step does with the state is read off the convolved channels. */
static void select_forward(const struct work *work,
                           const struct mamba_weights *weights,
                           const struct mamba_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int inner = config_inner(config);
    const int rank = config_dt_rank(config);

    linear_forward(work, buffers->u, inner, weights->bc_w, NO_BIAS, NULL,
                   buffers->bc, 2 * config->state);
    linear_forward(work, buffers->u, inner, weights->dt_down, NO_BIAS, NULL,
                   buffers->dt_low, rank);
    linear_forward(work, buffers->dt_low, rank, weights->dt_up, weights->dt_b,
                   NULL, buffers->dt, inner);
}

void mamba_forward(const struct work *work, int layer, const float *x,
                   float *out)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const struct mamba_weights *weights = &model->mamba[layer];
    const struct mamba_buffers *buffers = &work->set->mamba[layer];
    const int c = config->hidden;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    norm_forward(work, x, c, weights->norm_g, weights->norm_b, buffers->norm,
                 buffers->mean, buffers->rstd);
    linear_forward(work, buffers->norm, c, weights->in_w, NO_BIAS, NULL,
                   buffers->xz, 2 * inner);
    LAUNCH(&work->queue, mamba_conv_forward, mamba_conv_args,
           blocks_of((size_t)(rows * inner), mamba_conv_forward_threads),
           .xz = buffers->xz, .w = model->w + weights->conv_w,
           .b = model->w + weights->conv_b, .pre = buffers->pre,
           .u = buffers->u, .rows = rows, .seq = config->seq, .inner = inner,
           .taps = TAPS);
    select_forward(work, weights, buffers);
    LAUNCH(
        &work->queue, mamba_scan_forward, mamba_scan_args,
        blocks_of((size_t)(config->batch * inner), mamba_scan_forward_threads),
        .u = buffers->u, .dt = buffers->dt, .bc = buffers->bc,
        .decay = model->w + weights->decay, .skip = model->w + weights->skip,
        .gate = buffers->xz + inner, .states = buffers->states, .y = buffers->y,
        .gated = buffers->gated, .batch = config->batch, .seq = config->seq,
        .inner = inner, .state = config->state);
    linear_forward(work, buffers->gated, inner, weights->out_w, NO_BIAS, x, out,
                   c);
}

static void scan_backward(const struct work *work,
                          const struct mamba_weights *weights,
                          const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const struct mamba_scratch *d = &work->set->d_mamba;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    LAUNCH(
        &work->queue, mamba_scan_backward, mamba_scan_backward_args,
        blocks_of((size_t)(config->batch * inner), mamba_scan_backward_threads),
        .d_gated = d->gated, .u = buffers->u, .dt = buffers->dt,
        .bc = buffers->bc, .decay = model->w + weights->decay,
        .skip = model->w + weights->skip, .gate = buffers->xz + inner,
        .states = buffers->states, .y = buffers->y, .du = d->u, .d_dt = d->dt,
        .dy = d->y, .d_gate = d->xz + inner, .d_states = d->states,
        .batch = config->batch, .seq = config->seq, .inner = inner,
        .state = config->state);
    LAUNCH(&work->queue, mamba_bc_backward, mamba_bc_args,
           blocks_of((size_t)rows * 2 * (size_t)config->state, ROWS_A_BLOCK),
           .u = buffers->u, .dt = buffers->dt, .states = buffers->states,
           .dy = d->y, .d_states = d->states, .d_bc = d->bc, .rows = rows,
           .inner = inner, .state = config->state);
    LAUNCH(&work->queue, mamba_param_backward, mamba_param_args,
           blocks_of((size_t)(config->state * inner),
                     mamba_param_backward_threads),
           .u = buffers->u, .dt = buffers->dt,
           .decay = model->w + weights->decay, .states = buffers->states,
           .dy = d->y, .d_states = d->states,
           .d_decay = model->g + weights->decay,
           .d_skip = model->g + weights->skip, .rows = rows, .seq = config->seq,
           .inner = inner, .state = config->state);
}

/* Adds to the gradient of u. */
static void select_backward(const struct work *work,
                            const struct mamba_weights *weights,
                            const struct mamba_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const struct mamba_scratch *d = &work->set->d_mamba;
    const int inner = config_inner(config);
    const int rank = config_dt_rank(config);

    linear_backward(work, buffers->dt_low, rank, weights->dt_up, weights->dt_b,
                    d->dt, inner, d->dt_low);
    linear_backward_add(work, buffers->u, inner, weights->dt_down, NO_BIAS,
                        d->dt_low, rank, d->u, d->u);
    linear_backward_add(work, buffers->u, inner, weights->bc_w, NO_BIAS, d->bc,
                        2 * config->state, d->u, d->u);
}

static void conv_backward(const struct work *work,
                          const struct mamba_weights *weights,
                          const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const struct mamba_scratch *d = &work->set->d_mamba;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    LAUNCH(&work->queue, mamba_conv_param_backward, mamba_conv_param_args,
           blocks_of((size_t)((TAPS + 1) * inner),
                     mamba_conv_param_backward_threads),
           .du = d->u, .pre = buffers->pre, .xz = buffers->xz,
           .dw = model->g + weights->conv_w, .db = model->g + weights->conv_b,
           .rows = rows, .seq = config->seq, .inner = inner, .taps = TAPS);
    LAUNCH(&work->queue, mamba_conv_backward, mamba_conv_backward_args,
           blocks_of((size_t)(rows * inner), mamba_conv_backward_threads),
           .du = d->u, .pre = buffers->pre, .w = model->w + weights->conv_w,
           .d_xz = d->xz, .rows = rows, .seq = config->seq, .inner = inner,
           .taps = TAPS);
}

void mamba_backward(const struct work *work, int layer, const float *x,
                    const float *dy, float *dx)
{
    const struct config *config = &work->model->config;
    const struct mamba_weights *weights = &work->model->mamba[layer];
    const struct mamba_buffers *buffers = &work->set->mamba[layer];
    const struct mamba_scratch *d = &work->set->d_mamba;
    const int c = config->hidden;
    const int inner = config_inner(config);

    linear_backward(work, buffers->gated, inner, weights->out_w, NO_BIAS, dy, c,
                    d->gated);
    scan_backward(work, weights, buffers);
    select_backward(work, weights, buffers);
    conv_backward(work, weights, buffers);
    linear_backward(work, buffers->norm, c, weights->in_w, NO_BIAS, d->xz,
                    2 * inner, work->set->d_rows);
    norm_backward(work, work->set->d_rows, x, c, weights->norm_g,
                  weights->norm_b, buffers->mean, buffers->rstd, dy, dx);
}
