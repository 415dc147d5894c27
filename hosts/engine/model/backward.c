/*
 * backward.c - the head, the parts, the embedding: one microbatch backward.
 *
 * A part's backward has two halves.  The first makes the gradient of what the
 * part read, and leaves behind what the second half reads.  The second adds to
 * the gradients of the part's weights.  Whether it runs at once or much later,
 * it is the same kernels with the same numbers, in the order of the
 * microbatches, which the schedule keeps across streams.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cp_attention.h"

#include <math.h>

/* head_forward has replaced the logits by their gradient. */
void head_backward(const struct work *work, const float *x, float *dx)
{
    const struct model *model = work->model;
    const struct set *set = work->set;
    const int c = model->config.hidden;

    if (model->config.tied) {
        linear_wgrad(work, set->logits, VOCAB, set->norm, c, model->head_w,
                     NO_BIAS);
        linear_forward(work, set->logits, VOCAB, model->head_w, NO_BIAS, NULL,
                       set->d_norm, c);
    } else {
        linear_wgrad(work, set->norm, c, set->logits, VOCAB, model->head_w,
                     NO_BIAS);
        linear_dgrad(work, set->logits, VOCAB, model->head_w, NULL,
                     set->d_norm, c);
    }
    norm_wgrad(work, set->d_norm, x, c, model->norm_g, model->norm_b, set->mean,
               set->rstd);
    norm_dgrad(work, set->d_norm, x, c, model->norm_g, set->mean, set->rstd,
               NULL, dx);
}

/* Reads the gradient of the context from d_norm, where the gradient of the norm
 * is written later. */
static void attention_backward(const struct work *work,
                               const struct attn_buffers *buffers)
{
    const struct set *set = work->set;
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int d = c / config->heads;
    const int rows = config_rows(config) * config->heads;
    const struct view q = view_heads(config, buffers->qkv, 3, 0);
    const struct view k = view_heads(config, buffers->qkv, 3, c);
    const struct view v = view_heads(config, buffers->qkv, 3, 2 * c);
    const struct view dq = view_heads(config, buffers->d_qkv, 3, 0);
    const struct view dk = view_heads(config, buffers->d_qkv, 3, c);
    const struct view dv = view_heads(config, buffers->d_qkv, 3, 2 * c);
    const struct view probs = view_scores(config, buffers->probs);
    const struct view d_probs = view_scores(config, set->d_probs);
    const struct view d_context = view_heads(config, buffers->d_norm, 1, 0);

    if (work_has_cp(work)) {
        const struct cp_attention cp = attn_cp(work, buffers);

        cp_attention_backward(
            work, &cp, d_context, dq,
            (struct strip){ buffers->d_qkv + c, 1, c, 3 * c },
            (struct strip){ buffers->d_qkv + 2 * c, 1, c, 3 * c });
        return;
    }
    heads_product(work, GEMM_TN, d, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  probs, d_context, dv);
    heads_product(work, GEMM_NT, config->seq, d, GEMM_CAUSAL_RESULT, 1.0f,
                  d_context, v, d_probs);
    LAUNCH(&work->queue, softmax_backward, softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = buffers->probs,
           .dp = set->d_probs, .rows = rows, .seq = config->seq,
           .scale = 1.0f / sqrtf((float)d));
    heads_product(work, GEMM_NN, d, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  d_probs, k, dq);
    heads_product(work, GEMM_TN, d, config->seq, GEMM_CAUSAL_FROM_ROW, 1.0f,
                  d_probs, q, dk);
}

static void attn_dgrad(const struct work *work, int layer, const float *x,
                       const float *dy, float *dx)
{
    const struct attn_weights *weights = &work->model->attn[layer];
    const struct attn_buffers *buffers = &work->set->attn[layer];
    const int c = work->model->config.hidden;

    linear_dgrad(work, dy, c, weights->out_w, NULL, buffers->d_norm, c);
    attention_backward(work, buffers);
    linear_dgrad(work, buffers->d_qkv, 3 * c, weights->qkv_w, NULL,
                 buffers->d_norm, c);
    norm_dgrad(work, buffers->d_norm, x, c, weights->norm_g, buffers->mean,
               buffers->rstd, dy, dx);
}

static void attn_wgrad(const struct work *work, int layer, const float *x,
                       const float *dy)
{
    const struct attn_weights *weights = &work->model->attn[layer];
    const struct attn_buffers *buffers = &work->set->attn[layer];
    const int c = work->model->config.hidden;

    linear_wgrad(work, buffers->context, c, dy, c, weights->out_w,
                 weights->out_b);
    linear_wgrad(work, buffers->norm, c, buffers->d_qkv, 3 * c, weights->qkv_w,
                 weights->qkv_b);
    norm_wgrad(work, buffers->d_norm, x, c, weights->norm_g, weights->norm_b,
               buffers->mean, buffers->rstd);
}

static void mlp_dgrad(const struct work *work, int layer, const float *x,
                      const float *dy, float *dx)
{
    const struct mlp_weights *weights = &work->model->mlp[layer];
    const struct mlp_buffers *buffers = &work->set->mlp[layer];
    const int c = work->model->config.hidden;
    const size_t rows = (size_t)config_rows(&work->model->config);

    linear_dgrad(work, dy, c, weights->down_w, NULL, buffers->d_wide,
                 WIDEN * c);
    gelu_backward(work, buffers->wide, buffers->d_wide,
                  rows * WIDEN * (size_t)c);
    linear_dgrad(work, buffers->d_wide, WIDEN * c, weights->up_w, NULL,
                 buffers->d_norm, c);
    norm_dgrad(work, buffers->d_norm, x, c, weights->norm_g, buffers->mean,
               buffers->rstd, dy, dx);
}

static void mlp_wgrad(const struct work *work, int layer, const float *x,
                      const float *dy)
{
    const struct mlp_weights *weights = &work->model->mlp[layer];
    const struct mlp_buffers *buffers = &work->set->mlp[layer];
    const int c = work->model->config.hidden;

    linear_wgrad(work, buffers->gelu, WIDEN * c, dy, c, weights->down_w,
                 weights->down_b);
    linear_wgrad(work, buffers->norm, c, buffers->d_wide, WIDEN * c,
                 weights->up_w, weights->up_b);
    norm_wgrad(work, buffers->d_norm, x, c, weights->norm_g, weights->norm_b,
               buffers->mean, buffers->rstd);
}

static void part_dgrad(const struct work *work, const struct part *part,
                       const float *x, const float *dy, float *dx)
{
    switch (part->kind) {
    case PART_ATTN:
        (work->model->config.model == MODEL_MLA ? mla_dgrad : attn_dgrad)(
            work, part->layer, x, dy, dx);
        break;
    case PART_MAMBA:
        mamba_dgrad(work, part->layer, x, dy, dx);
        break;
    case PART_MLP:
        mlp_dgrad(work, part->layer, x, dy, dx);
        break;
    default:
        moe_dgrad(work, part, x, dy, dx);
        break;
    }
}

static void part_wgrad(const struct work *work, const struct part *part,
                       const float *x, const float *dy)
{
    switch (part->kind) {
    case PART_ATTN:
        (work->model->config.model == MODEL_MLA ? mla_wgrad : attn_wgrad)(
            work, part->layer, x, dy);
        break;
    case PART_MAMBA:
        mamba_wgrad(work, part->layer, x, dy);
        break;
    case PART_MLP:
        mlp_wgrad(work, part->layer, x, dy);
        break;
    default:
        moe_wgrad(work, part, x);
        break;
    }
}

void parts_backward(const struct work *work, int first, int last,
                    enum halves halves, const float *x, const float *dy)
{
    for (int i = last; i >= first; i--) {
        const struct part *part = &work->model->parts[i];
        float *dx = set_part_gradient(work->set, i);
        const float *was = i == 0 ? NULL : set_part_out(work->set, i - 1);
        const float *in;

        if (work_before(work, i, false) != 0) {
            return;
        }
        /* What was offloaded has come back to another address. */
        in = i == first && x != was ? x : set_part_out(work->set, i - 1);
        if (halves != HALF_WGRAD) {
            part_dgrad(work, part, in, dy, dx);
        }
        if (halves != HALF_DGRAD) {
            part_wgrad(work, part, in, dy);
        }
        if (work_after(work, i, false) != 0) {
            return;
        }
        dy = dx;
    }
}

/* Adds dw[index[i]] += dx[i], in the order of the rows. */
static void add_rows(const struct work *work, const int *index, const float *dx,
                     float *dw, int n)
{
    const struct config *config = &work->model->config;
    const int cols = config->hidden;

    device_launch(&work->queue, KERNEL_embed_token_backward,
                  blocks_of((size_t)cols, embed_token_backward_threads),
                  (size_t)n, 1,
                  &(const struct embed_token_args){
                      .tokens = index,
                      .dx = dx,
                      .dw = dw,
                      .rows = config_rows(config),
                      .cols = cols,
                      .vocab = n,
                  });
}

void embed_backward(const struct work *work, const int *tokens, const float *dx)
{
    const struct model *model = work->model;
    const struct config *config = &model->config;
    const int cols = config->hidden;

    add_rows(work, tokens, dx, model->g + model->token_w, VOCAB);
    if (work->positions != NULL) {
        add_rows(work, work->positions, dx, model->g + model->position_w,
                 config_keys(config));
        return;
    }
    LAUNCH(&work->queue, embed_position_backward, embed_position_args,
           blocks_of((size_t)config->seq * (size_t)cols,
                     embed_position_backward_threads),
           .dx = dx, .dw = model->g + model->position_w, .batch = config->batch,
           .seq = config->seq, .cols = cols);
}
