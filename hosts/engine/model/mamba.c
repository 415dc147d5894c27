/*
 * mamba.c - a Mamba layer, forward and backward: in, convolve, scan, gate,
 * out.
 *
 * The state runs through a whole sequence.  If ranks share a sequence, each
 * has all of it between `in` and `out`: the input is gathered, and each rank
 * takes its own rows of the result.  All ranks do the same work in between, so
 * only the first adds to the gradients of the weights there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cp_attention.h"

/* Computes from the convolved channels what each step does to the state. */
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

/* Goes from xz to gated. */
static void core_forward(const struct work *work,
                         const struct mamba_weights *weights,
                         const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    LAUNCH(&work->queue, mamba_conv_forward, mamba_conv_args,
           blocks_of((size_t)(rows * inner), mamba_conv_forward_threads),
           .xz = buffers->xz, .w = model->w + weights->conv_w,
           .b = model->w + weights->conv_b, .starts = work_starts(work),
           .pre = buffers->pre,
           .u = buffers->u, .rows = rows, .seq = config->seq, .inner = inner,
           .taps = TAPS);
    select_forward(work, weights, buffers);
    LAUNCH(
        &work->queue, mamba_scan_forward, mamba_scan_args,
        blocks_of((size_t)(config->batch * inner), mamba_scan_forward_threads),
        .u = buffers->u, .dt = buffers->dt, .bc = buffers->bc,
        .decay = model->w + weights->decay, .skip = model->w + weights->skip,
        .gate = buffers->xz + inner, .starts = work_starts(work),
        .states = buffers->states, .y = buffers->y,
        .gated = buffers->gated, .batch = config->batch, .seq = config->seq,
        .inner = inner, .state = config->state);
}

/* The same work, but on whole sequences.  `model` is room for its sizes. */
static struct work whole_of(const struct work *work, struct model *model)
{
    struct work whole = *work;

    *model = *work->model;
    model->config.seq = config_keys(&work->model->config);
    model->config.cp = 1;
    whole.model = model;
    whole.whole = true;
    return whole;
}

/* Takes what `in` made of this rank's rows, and returns what its `out`
 * reads. */
static const float *cp_core_forward(const struct work *work,
                                    const struct mamba_weights *weights,
                                    const struct mamba_buffers *buffers)
{
    const int inner = config_inner(&work->model->config);
    float *own = work->set->cp.own_rows;
    struct model model;
    const struct work whole = whole_of(work, &model);

    cp_gather_rows(work, own, 2 * inner, buffers->xz);
    core_forward(&whole, weights, buffers);
    cp_take_rows(work, buffers->gated, inner, own);
    return own;
}

void mamba_forward(const struct work *work, int layer, const float *x,
                   float *out)
{
    const struct config *config = &work->model->config;
    const struct mamba_weights *weights = &work->model->mamba[layer];
    const struct mamba_buffers *buffers = &work->set->mamba[layer];
    const bool cp = work_has_cp(work);
    const float *gated = buffers->gated;
    const int c = config->hidden;
    const int inner = config_inner(config);

    norm_forward(work, x, c, weights->norm_g, weights->norm_b, buffers->norm,
                 buffers->mean, buffers->rstd);
    linear_forward(work, buffers->norm, c, weights->in_w, NO_BIAS, NULL,
                   cp ? work->set->cp.own_rows : buffers->xz,
                   2 * inner);
    if (cp) {
        gated = cp_core_forward(work, weights, buffers);
    } else {
        core_forward(work, weights, buffers);
    }
    linear_forward(work, gated, inner, weights->out_w, NO_BIAS, x, out, c);
}

static void scan_dgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    LAUNCH(
        &work->queue, mamba_scan_backward, mamba_scan_backward_args,
        blocks_of((size_t)(config->batch * inner), mamba_scan_backward_threads),
        .d_gated = work->set->d_gated, .u = buffers->u, .dt = buffers->dt,
        .bc = buffers->bc, .decay = model->w + weights->decay,
        .skip = model->w + weights->skip, .gate = buffers->xz + inner,
        .states = buffers->states, .y = buffers->y,
        .starts = work_starts(work), .du = buffers->d_u,
        .d_dt = buffers->d_dt, .dy = buffers->d_y,
        .d_gate = buffers->d_xz + inner, .d_states = buffers->d_states,
        .batch = config->batch, .seq = config->seq, .inner = inner,
        .state = config->state);
    LAUNCH(&work->queue, mamba_bc_backward, mamba_bc_args,
           blocks_of((size_t)rows * 2 * (size_t)config->state, ROWS_A_BLOCK),
           .u = buffers->u, .dt = buffers->dt, .states = buffers->states,
           .dy = buffers->d_y, .d_states = buffers->d_states,
           .d_bc = buffers->d_bc, .rows = rows, .inner = inner,
           .state = config->state);
}

static void scan_wgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int inner = config_inner(config);

    LAUNCH(&work->queue, mamba_param_backward, mamba_param_args,
           blocks_of((size_t)(config->state * inner),
                     mamba_param_backward_threads),
           .u = buffers->u, .dt = buffers->dt,
           .decay = model->w + weights->decay, .states = buffers->states,
           .dy = buffers->d_y, .d_states = buffers->d_states,
           .starts = work_starts(work), .d_decay = model->g + weights->decay,
           .d_skip = model->g + weights->skip, .rows = config_rows(config),
           .seq = config->seq, .inner = inner, .state = config->state);
}

/* Adds to the gradient of u. */
static void select_dgrad(const struct work *work,
                         const struct mamba_weights *weights,
                         const struct mamba_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int inner = config_inner(config);
    const int rank = config_dt_rank(config);

    linear_dgrad(work, buffers->d_dt, inner, weights->dt_up, NULL,
                 buffers->d_dt_low, rank);
    linear_dgrad(work, buffers->d_dt_low, rank, weights->dt_down, buffers->d_u,
                 buffers->d_u, inner);
    linear_dgrad(work, buffers->d_bc, 2 * config->state, weights->bc_w,
                 buffers->d_u, buffers->d_u, inner);
}

static void select_wgrad(const struct work *work,
                         const struct mamba_weights *weights,
                         const struct mamba_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int inner = config_inner(config);
    const int rank = config_dt_rank(config);

    linear_wgrad(work, buffers->dt_low, rank, buffers->d_dt, inner,
                 weights->dt_up, weights->dt_b);
    linear_wgrad(work, buffers->u, inner, buffers->d_dt_low, rank,
                 weights->dt_down, NO_BIAS);
    linear_wgrad(work, buffers->u, inner, buffers->d_bc, 2 * config->state,
                 weights->bc_w, NO_BIAS);
}

static void conv_dgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int inner = config_inner(config);
    const int rows = config_rows(config);

    LAUNCH(&work->queue, mamba_conv_backward, mamba_conv_backward_args,
           blocks_of((size_t)(rows * inner), mamba_conv_backward_threads),
           .du = buffers->d_u, .pre = buffers->pre,
           .w = model->w + weights->conv_w, .starts = work_starts(work),
           .d_xz = buffers->d_xz, .rows = rows,
           .seq = config->seq, .inner = inner, .taps = TAPS);
}

static void conv_wgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int inner = config_inner(config);

    LAUNCH(&work->queue, mamba_conv_param_backward, mamba_conv_param_args,
           blocks_of((size_t)((TAPS + 1) * inner),
                     mamba_conv_param_backward_threads),
           .du = buffers->d_u, .pre = buffers->pre, .xz = buffers->xz,
           .starts = work_starts(work),
           .dw = model->g + weights->conv_w, .db = model->g + weights->conv_b,
           .rows = config_rows(config), .seq = config->seq, .inner = inner,
           .taps = TAPS);
}

/* Goes from the gradient of gated, which is in the set, to that of xz. */
static void core_dgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    scan_dgrad(work, weights, buffers);
    select_dgrad(work, weights, buffers);
    conv_dgrad(work, weights, buffers);
}

static void core_wgrad(const struct work *work,
                       const struct mamba_weights *weights,
                       const struct mamba_buffers *buffers)
{
    scan_wgrad(work, weights, buffers);
    select_wgrad(work, weights, buffers);
    conv_wgrad(work, weights, buffers);
}

static void cp_core_dgrad(const struct work *work,
                          const struct mamba_weights *weights,
                          const struct mamba_buffers *buffers)
{
    const int inner = config_inner(&work->model->config);
    struct model model;
    const struct work whole = whole_of(work, &model);

    cp_gather_rows(work, work->set->cp.own_rows, inner, work->set->d_gated);
    core_dgrad(&whole, weights, buffers);
    cp_take_rows(work, buffers->d_xz, 2 * inner, buffers->d_xz_own);
}

void mamba_dgrad(const struct work *work, int layer, const float *x,
                 const float *dy, float *dx)
{
    const struct config *config = &work->model->config;
    const struct mamba_weights *weights = &work->model->mamba[layer];
    const struct mamba_buffers *buffers = &work->set->mamba[layer];
    const bool cp = work_has_cp(work);
    const int c = config->hidden;
    const int inner = config_inner(config);

    linear_dgrad(work, dy, c, weights->out_w, NULL,
                 cp ? work->set->cp.own_rows : work->set->d_gated,
                 inner);
    (cp ? cp_core_dgrad : core_dgrad)(work, weights, buffers);
    linear_dgrad(work, cp ? buffers->d_xz_own : buffers->d_xz, 2 * inner,
                 weights->in_w, NULL, buffers->d_norm, c);
    norm_dgrad(work, buffers->d_norm, x, c, weights->norm_g, buffers->mean,
               buffers->rstd, dy, dx);
}

/* Adds to the gradients of the weights between `in` and `out`.  Returns the
 * rows that `out` has read. */
static const float *cp_core_wgrad(const struct work *work,
                                  const struct mamba_weights *weights,
                                  const struct mamba_buffers *buffers)
{
    const int inner = config_inner(&work->model->config);
    float *own = work->set->cp.own_rows;
    struct model model;
    const struct work whole = whole_of(work, &model);

    if (work->comm->rank == 0) {
        core_wgrad(&whole, weights, buffers);
    }
    cp_take_rows(work, buffers->gated, inner, own);
    return own;
}

void mamba_wgrad(const struct work *work, int layer, const float *x,
                 const float *dy)
{
    const struct config *config = &work->model->config;
    const struct mamba_weights *weights = &work->model->mamba[layer];
    const struct mamba_buffers *buffers = &work->set->mamba[layer];
    const bool cp = work_has_cp(work);
    const float *gated = buffers->gated;
    const int c = config->hidden;
    const int inner = config_inner(config);

    if (cp) {
        gated = cp_core_wgrad(work, weights, buffers);
    } else {
        core_wgrad(work, weights, buffers);
    }
    linear_wgrad(work, gated, inner, dy, c, weights->out_w, NO_BIAS);
    linear_wgrad(work, buffers->norm, c,
                 cp ? buffers->d_xz_own : buffers->d_xz, 2 * inner,
                 weights->in_w, NO_BIAS);
    norm_wgrad(work, buffers->d_norm, x, c, weights->norm_g, weights->norm_b,
               buffers->mean, buffers->rstd);
}
