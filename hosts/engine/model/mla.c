/*
 * mla.c - multi-head latent attention, forward and backward.
 *
 * Queries pass through a low rank with a norm, and so do keys together with
 * values.  What depends on positions is separate: some columns of every head's
 * query, and one key that all heads share.  These are turned with the model's
 * tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cp_attention.h"

#include <math.h>

static float scale_of(const struct config *config)
{
    return 1.0f / sqrtf((float)(config_nope(config) + config_rope(config)));
}

/* y = x with the last columns of each head turned.  A head has `head` columns
 * of x.  The turned columns are x's own, or those of `shared` if it is not
 * NULL. */
static void turn_forward(const struct work *work, const float *x, int head,
                         const float *shared, float *y)
{
    const struct config *config = &work->model->config;
    const size_t n = (size_t)config_rows(config) * (size_t)config_qk(config);

    LAUNCH(&work->queue, mla_turn_forward, mla_turn_args,
           blocks_of(n, mla_turn_forward_threads), .x = x, .shared = shared,
           .rotary = work->model->rotary, .places = work_places(work),
           .y = y, .rows = config_rows(config),
           .seq = config_keys(config), .heads = config->heads, .head = head,
           .nope = config_nope(config), .rope = config_rope(config));
}

/* `own` says whether the turned columns are x's own. */
static void turn_backward(const struct work *work, const float *dy, int head,
                          bool own, float *dx)
{
    const struct config *config = &work->model->config;
    const size_t n = (size_t)config_rows(config) * (size_t)config_qk(config);

    LAUNCH(&work->queue, mla_turn_backward, mla_turn_backward_args,
           blocks_of(n, mla_turn_backward_threads), .dy = dy,
           .rotary = work->model->rotary, .places = work_places(work),
           .dx = dx, .rows = config_rows(config),
           .seq = config_keys(config), .heads = config->heads, .head = head,
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

/* Makes the keys, and the values, which are the other half of a head's columns
 * of kv. */
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

/* The values have one piece for each head. */
static struct strip strip_values(const struct config *config, float *kv)
{
    const int d = config_nope(config);

    return (struct strip){ kv + d, config->heads, d, 2 * d };
}

static struct strip strip_keys(const struct config *config, float *k)
{
    return (struct strip){ k, 1, config_qk(config), config_qk(config) };
}

static struct cp_attention mla_cp(const struct work *work,
                                  const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;

    return (struct cp_attention){
        .q = view_qk(config, buffers->q),
        .k = strip_keys(config, buffers->k),
        .v = strip_values(config, buffers->kv),
        .head_k = config_nope(config) + config_rope(config),
        .head_v = config_nope(config),
        .probs = buffers->probs,
        .scale = scale_of(config),
    };
}

static void products_forward(const struct work *work,
                             const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int d = config_nope(config);
    const int rows = config_rows(config) * config->heads;
    const struct view probs = view_scores(config, buffers->probs);
    const struct view context = view_heads(config, buffers->context, 1, 0);

    if (work_has_cp(work)) {
        const struct cp_attention cp = mla_cp(work, buffers);

        cp_attention_forward(work, &cp, context);
        return;
    }
    heads_product(work, GEMM_NT, config->seq, d + config_rope(config),
                  GEMM_CAUSAL_RESULT, scale_of(config),
                  view_qk(config, buffers->q), view_qk(config, buffers->k),
                  probs);
    LAUNCH(&work->queue, softmax_forward, softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = buffers->probs,
           .rows = rows, .seq = config->seq,
           .starts = work_starts(work), .heads = config->heads);
    heads_product(work, GEMM_NN, d, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  probs, view_values(config, buffers->kv), context);
}

void mla_forward(const struct work *work, int layer, const float *x, float *out)
{
    const struct config *config = &work->model->config;
    const struct mla_weights *weights = &work->model->mla[layer];
    const struct mla_buffers *buffers = &work->set->mla[layer];
    const int c = config->hidden;

    norm_forward(work, x, c, weights->norm_g, weights->norm_b, buffers->norm,
                 buffers->mean, buffers->rstd);
    queries_forward(work, weights, buffers);
    keys_forward(work, weights, buffers);
    products_forward(work, buffers);
    linear_forward(work, buffers->context, c, weights->out_w, NO_BIAS, x, out,
                   c);
}

/* Reads the gradient of the context from where the norm's is written later, and
 * writes the gradients of q, k and the values. */
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
    const struct view d_context = view_heads(config, buffers->d_norm, 1, 0);

    if (work_has_cp(work)) {
        const struct cp_attention cp = mla_cp(work, buffers);

        cp_attention_backward(
            work, &cp, d_context, view_qk(config, set->d_q),
            strip_keys(config, set->d_k), strip_values(config, buffers->d_kv));
        return;
    }
    heads_product(work, GEMM_TN, d, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  probs, d_context, view_values(config, buffers->d_kv));
    heads_product(work, GEMM_NT, config->seq, d, GEMM_CAUSAL_RESULT, 1.0f,
                  d_context, view_values(config, buffers->kv), d_probs);
    LAUNCH(&work->queue, softmax_backward, softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = buffers->probs,
           .dp = set->d_probs, .rows = rows, .seq = config->seq,
           .scale = scale_of(config));
    heads_product(work, GEMM_NN, qk, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  d_probs, view_qk(config, buffers->k),
                  view_qk(config, set->d_q));
    heads_product(work, GEMM_TN, qk, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  d_probs, view_qk(config, buffers->q),
                  view_qk(config, set->d_k));
}

/* Writes the gradient of the norm's output. */
static void queries_dgrad(const struct work *work,
                          const struct mla_weights *weights,
                          const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int rank = config_q_rank(config);

    turn_backward(work, work->set->d_q,
                  config_nope(config) + config_rope(config), true,
                  buffers->d_q_up);
    linear_dgrad(work, buffers->d_q_up, config_qk(config), weights->q_up, NULL,
                 buffers->d_q_norm, rank);
    norm_dgrad(work, buffers->d_q_norm, buffers->q_low, rank, weights->q_norm_g,
               buffers->q_mean, buffers->q_rstd, NULL, buffers->d_q_low);
    linear_dgrad(work, buffers->d_q_low, rank, weights->q_down, NULL,
                 buffers->d_norm, config->hidden);
}

static void queries_wgrad(const struct work *work,
                          const struct mla_weights *weights,
                          const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int rank = config_q_rank(config);

    linear_wgrad(work, buffers->q_norm, rank, buffers->d_q_up,
                 config_qk(config), weights->q_up, NO_BIAS);
    norm_wgrad(work, buffers->d_q_norm, buffers->q_low, rank, weights->q_norm_g,
               weights->q_norm_b, buffers->q_mean, buffers->q_rstd);
    linear_wgrad(work, buffers->norm, config->hidden, buffers->d_q_low, rank,
                 weights->q_down, NO_BIAS);
}

/* Adds to the gradient of the norm's output. */
static void keys_dgrad(const struct work *work,
                       const struct mla_weights *weights,
                       const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int rank = config_kv_rank(config);
    const int rope = config_rope(config);
    const int rows = config_rows(config);

    turn_backward(work, work->set->d_k, 2 * config_nope(config), false,
                  buffers->d_kv);
    LAUNCH(&work->queue, mla_shared_backward, mla_shared_args,
           blocks_of((size_t)(rows * rope), mla_shared_backward_threads),
           .dy = work->set->d_k, .rotary = work->model->rotary,
           .places = work_places(work),
           .dx = buffers->d_rope, .rows = rows, .seq = config_keys(config),
           .heads = config->heads, .nope = config_nope(config), .rope = rope);
    linear_dgrad(work, buffers->d_kv, 2 * c, weights->kv_up, NULL,
                 buffers->d_kv_norm, rank);
    norm_dgrad(work, buffers->d_kv_norm, buffers->kv_low, rank,
               weights->kv_norm_g, buffers->kv_mean, buffers->kv_rstd, NULL,
               buffers->d_kv_low);
    linear_dgrad(work, buffers->d_kv_low, rank, weights->kv_down,
                 buffers->d_norm, buffers->d_norm, c);
    linear_dgrad(work, buffers->d_rope, rope, weights->rope_w, buffers->d_norm,
                 buffers->d_norm, c);
}

static void keys_wgrad(const struct work *work,
                       const struct mla_weights *weights,
                       const struct mla_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int rank = config_kv_rank(config);

    linear_wgrad(work, buffers->kv_norm, rank, buffers->d_kv, 2 * c,
                 weights->kv_up, NO_BIAS);
    norm_wgrad(work, buffers->d_kv_norm, buffers->kv_low, rank,
               weights->kv_norm_g, weights->kv_norm_b, buffers->kv_mean,
               buffers->kv_rstd);
    linear_wgrad(work, buffers->norm, c, buffers->d_kv_low, rank,
                 weights->kv_down, NO_BIAS);
    linear_wgrad(work, buffers->norm, c, buffers->d_rope, config_rope(config),
                 weights->rope_w, NO_BIAS);
}

void mla_dgrad(const struct work *work, int layer, const float *x,
               const float *dy, float *dx)
{
    const struct mla_weights *weights = &work->model->mla[layer];
    const struct mla_buffers *buffers = &work->set->mla[layer];
    const int c = work->model->config.hidden;

    linear_dgrad(work, dy, c, weights->out_w, NULL, buffers->d_norm, c);
    products_backward(work, buffers);
    queries_dgrad(work, weights, buffers);
    keys_dgrad(work, weights, buffers);
    norm_dgrad(work, buffers->d_norm, x, c, weights->norm_g, buffers->mean,
               buffers->rstd, dy, dx);
}

void mla_wgrad(const struct work *work, int layer, const float *x,
               const float *dy)
{
    const struct mla_weights *weights = &work->model->mla[layer];
    const struct mla_buffers *buffers = &work->set->mla[layer];
    const int c = work->model->config.hidden;

    linear_wgrad(work, buffers->context, c, dy, c, weights->out_w, NO_BIAS);
    queries_wgrad(work, weights, buffers);
    keys_wgrad(work, weights, buffers);
    norm_wgrad(work, buffers->d_norm, x, c, weights->norm_g, weights->norm_b,
               buffers->mean, buffers->rstd);
}
