/*
 * mla.c - multi-head latent attention, both ways.
 *
 * Queries, and keys with values, pass through a low rank with a norm of its
 * own.  What knows positions is apart from that: some columns of every head's
 * query, and one key that all heads share, turned by the model's tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "linear.h"

#include <math.h>

static float scale_of(const struct config *config)
{
    return 1.0f / sqrtf((float)(config_nope(config) + config_rope(config)));
}

/* y = x with its last columns turned, head by head; `head` columns of x are a
 * head's, and what is turned is x's own or, if not NULL, shared. */
static void turn_forward(const struct work *work, const float *x, int head,
                         const float *shared, float *y)
{
    const struct config *config = &work->model->config;
    const size_t n = (size_t)config_rows(config) * (size_t)config_qk(config);

    LAUNCH(&work->queue, mla_turn_forward, mla_turn_args,
           blocks_of(n, mla_turn_forward_threads), .x = x, .shared = shared,
           .rotary = work->model->rotary, .y = y, .rows = config_rows(config),
           .seq = config->seq, .heads = config->heads, .head = head,
           .nope = config_nope(config), .rope = config_rope(config));
}

/* `own`: whether the turned columns are x's own. */
static void turn_backward(const struct work *work, const float *dy, int head,
                          bool own, float *dx)
{
    const struct config *config = &work->model->config;
    const size_t n = (size_t)config_rows(config) * (size_t)config_qk(config);

    LAUNCH(&work->queue, mla_turn_backward, mla_turn_backward_args,
           blocks_of(n, mla_turn_backward_threads), .dy = dy,
           .rotary = work->model->rotary, .dx = dx, .rows = config_rows(config),
           .seq = config->seq, .heads = config->heads, .head = head,
           .nope = config_nope(config), .rope = config_rope(config),
           .own = own);
}

static void queries_forward(const struct work *work,
                            const struct mla_weights *weights,
                            const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int rank = config_q_rank(config);

    linear_forward(work, buffers->norm, config->hidden, weights->q_down,
                   NO_BIAS, NULL, buffers->q_low, rank);
    norm_forward(work, buffers->q_low, rank, weights->q_norm_g,
                 weights->q_norm_b, buffers->q_norm, buffers->q_mean,
                 buffers->q_rstd);
    linear_forward(work, buffers->q_norm, rank, weights->q_up, NO_BIAS, NULL,
                   buffers->q_up, config_qk(config));
    turn_forward(work, buffers->q_up, config_nope(config) + config_rope(config),
                 NULL, buffers->q);
}

/* And values: they are the other half of a head's columns of kv. */
static void keys_forward(const struct work *work,
                         const struct mla_weights *weights,
                         const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int rank = config_kv_rank(config);

    linear_forward(work, buffers->norm, c, weights->kv_down, NO_BIAS, NULL,
                   buffers->kv_low, rank);
    norm_forward(work, buffers->kv_low, rank, weights->kv_norm_g,
                 weights->kv_norm_b, buffers->kv_norm, buffers->kv_mean,
                 buffers->kv_rstd);
    linear_forward(work, buffers->kv_norm, rank, weights->kv_up, NO_BIAS, NULL,
                   buffers->kv, 2 * c);
    linear_forward(work, buffers->norm, c, weights->rope_w, NO_BIAS, NULL,
                   buffers->rope, config_rope(config));
    turn_forward(work, buffers->kv, 2 * config_nope(config), buffers->rope,
                 buffers->k);
}

static struct view view_qk(const struct config *config, const float *data)
{
    return view_of(config, data, config_qk(config),
                   config_nope(config) + config_rope(config));
}

static struct view view_values(const struct config *config, const float *kv)
{
    const int d = config_nope(config);

    return view_of(config, kv + d, 2 * config->hidden, 2 * d);
}

void mla_forward(const struct work *work, int layer, const float *x, float *out)
{
    const struct config *config = &work->model->config;
    const struct mla_weights *weights = &work->model->mla[layer];
    const struct mla_buffers *buffers = &work->set->mla[layer];
    const int c = config->hidden;
    const int d = config_nope(config);
    const int rows = config_rows(config) * config->heads;
    const struct view probs = view_scores(config, buffers->probs);

    norm_forward(work, x, c, weights->norm_g, weights->norm_b, buffers->norm,
                 buffers->mean, buffers->rstd);
    queries_forward(work, weights, buffers);
    keys_forward(work, weights, buffers);
    heads_product(work, GEMM_NT, config->seq, d + config_rope(config),
                  GEMM_CAUSAL_RESULT, scale_of(config),
                  view_qk(config, buffers->q), view_qk(config, buffers->k),
                  probs);
    LAUNCH(&work->queue, softmax_forward, softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = buffers->probs,
           .rows = rows, .seq = config->seq);
    heads_product(work, GEMM_NN, d, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  probs, view_values(config, buffers->kv),
                  view_heads(config, buffers->context, 1, 0));
    linear_forward(work, buffers->context, c, weights->out_w, NO_BIAS, x, out,
                   c);
}

/* d_context in set->d_rows; gradients of q, k and the values follow. */
static void products_backward(const struct work *work,
                              const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const struct set *set = work->set;
    const int d = config_nope(config);
    const int qk = d + config_rope(config);
    const int rows = config_rows(config) * config->heads;
    const struct view probs = view_scores(config, buffers->probs);
    const struct view d_probs = view_scores(config, set->d_probs);
    const struct view d_context = view_heads(config, set->d_rows, 1, 0);

    heads_product(work, GEMM_TN, d, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  probs, d_context, view_values(config, set->d_mla.kv));
    heads_product(work, GEMM_NT, config->seq, d, GEMM_CAUSAL_RESULT, 1.0f,
                  d_context, view_values(config, buffers->kv), d_probs);
    LAUNCH(&work->queue, softmax_backward, softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = buffers->probs,
           .dp = set->d_probs, .rows = rows, .seq = config->seq,
           .scale = scale_of(config));
    heads_product(work, GEMM_NN, qk, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  d_probs, view_qk(config, buffers->k),
                  view_qk(config, set->d_mla.q));
    heads_product(work, GEMM_TN, qk, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  d_probs, view_qk(config, buffers->q),
                  view_qk(config, set->d_mla.k));
}

/* Writes set->d_rows. */
static void queries_backward(const struct work *work,
                             const struct mla_weights *weights,
                             const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const struct mla_scratch *d = &work->set->d_mla;
    const int rank = config_q_rank(config);

    turn_backward(work, d->q, config_nope(config) + config_rope(config), true,
                  d->q_up);
    linear_backward(work, buffers->q_norm, rank, weights->q_up, NO_BIAS,
                    d->q_up, config_qk(config), d->low_norm);
    norm_backward(work, d->low_norm, buffers->q_low, rank, weights->q_norm_g,
                  weights->q_norm_b, buffers->q_mean, buffers->q_rstd, NULL,
                  d->low);
    linear_backward(work, buffers->norm, config->hidden, weights->q_down,
                    NO_BIAS, d->low, rank, work->set->d_rows);
}

/* Adds to set->d_rows. */
static void keys_backward(const struct work *work,
                          const struct mla_weights *weights,
                          const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const struct mla_scratch *d = &work->set->d_mla;
    float *d_rows = work->set->d_rows;
    const int c = config->hidden;
    const int rank = config_kv_rank(config);
    const int rope = config_rope(config);
    const int rows = config_rows(config);

    turn_backward(work, d->k, 2 * config_nope(config), false, d->kv);
    LAUNCH(&work->queue, mla_shared_backward, mla_shared_args,
           blocks_of((size_t)(rows * rope), mla_shared_backward_threads),
           .dy = d->k, .rotary = work->model->rotary, .dx = d->rope,
           .rows = rows, .seq = config->seq, .heads = config->heads,
           .nope = config_nope(config), .rope = rope);
    linear_backward(work, buffers->kv_norm, rank, weights->kv_up, NO_BIAS,
                    d->kv, 2 * c, d->low_norm);
    norm_backward(work, d->low_norm, buffers->kv_low, rank, weights->kv_norm_g,
                  weights->kv_norm_b, buffers->kv_mean, buffers->kv_rstd, NULL,
                  d->low);
    linear_backward_add(work, buffers->norm, c, weights->kv_down, NO_BIAS,
                        d->low, rank, d_rows, d_rows);
    linear_backward_add(work, buffers->norm, c, weights->rope_w, NO_BIAS,
                        d->rope, rope, d_rows, d_rows);
}

void mla_backward(const struct work *work, int layer, const float *x,
                  const float *dy, float *dx)
{
    const struct mla_weights *weights = &work->model->mla[layer];
    const struct mla_buffers *buffers = &work->set->mla[layer];
    const int c = work->model->config.hidden;

    linear_backward(work, buffers->context, c, weights->out_w, NO_BIAS, dy, c,
                    work->set->d_rows);
    products_backward(work, buffers);
    queries_backward(work, weights, buffers);
    keys_backward(work, weights, buffers);
    norm_backward(work, work->set->d_rows, x, c, weights->norm_g,
                  weights->norm_b, buffers->mean, buffers->rstd, dy, dx);
}
