/*
 * forward.c - embedding, the parts, the head: one microbatch forward.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cp_attention.h"

#include <math.h>

void embed_forward(const struct work *work, const int *tokens, float *x)
{
    const struct model *model = work->model;
    const int rows = config_rows(&model->config);
    const int cols = model->config.hidden;

    LAUNCH(&work->queue, embed_forward, embed_args,
           blocks_of((size_t)rows * (size_t)cols, embed_forward_threads),
           .tokens = tokens, .positions = work->positions,
           .token_w = model->w + model->token_w,
           .position_w = model->w + model->position_w, .out = x, .rows = rows,
           .seq = config_keys(&model->config), .cols = cols, .vocab = VOCAB);
}

/* For every head: probs = softmax(q k^T / sqrt(d)), context = probs v. */
static void attention_forward(const struct work *work,
                              const struct attn_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int d = c / config->heads;
    const int rows = config_rows(config) * config->heads;
    const struct view q = view_heads(config, buffers->qkv, 3, 0);
    const struct view k = view_heads(config, buffers->qkv, 3, c);
    const struct view v = view_heads(config, buffers->qkv, 3, 2 * c);
    const struct view probs = view_scores(config, buffers->probs);
    const struct view context = view_heads(config, buffers->context, 1, 0);

    if (work_has_cp(work)) {
        const struct cp_attention cp = attn_cp(work, buffers);

        cp_attention_forward(work, &cp, context);
        return;
    }
    heads_product(work, GEMM_NT, config->seq, d, GEMM_CAUSAL_RESULT,
                  1.0f / sqrtf((float)d), q, k, probs);
    LAUNCH(&work->queue, softmax_forward, softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = buffers->probs,
           .starts = work_starts(work), .rows = rows, .seq = config->seq,
           .heads = config->heads);
    heads_product(work, GEMM_NN, d, config->seq, GEMM_CAUSAL_TO_ROW, 1.0f,
                  probs, v, context);
}

static void attn_forward(const struct work *work, int layer, const float *x,
                         float *out)
{
    const struct attn_weights *weights = &work->model->attn[layer];
    const struct attn_buffers *buffers = &work->set->attn[layer];
    const int c = work->model->config.hidden;

    norm_forward(work, x, work->model->config.hidden, weights->norm_g,
                 weights->norm_b, buffers->norm, buffers->mean, buffers->rstd);
    linear_forward(work, buffers->norm, c, weights->qkv_w, weights->qkv_b, NULL,
                   buffers->qkv, 3 * c);
    attention_forward(work, buffers);
    linear_forward(work, buffers->context, c, weights->out_w, weights->out_b, x,
                   out, c);
}

static void mlp_forward(const struct work *work, int layer, const float *x,
                        float *out)
{
    const struct mlp_weights *weights = &work->model->mlp[layer];
    const struct mlp_buffers *buffers = &work->set->mlp[layer];
    const int c = work->model->config.hidden;
    const size_t rows = (size_t)config_rows(&work->model->config);

    norm_forward(work, x, work->model->config.hidden, weights->norm_g,
                 weights->norm_b, buffers->norm, buffers->mean, buffers->rstd);
    linear_forward(work, buffers->norm, c, weights->up_w, weights->up_b, NULL,
                   buffers->wide, WIDEN * c);
    gelu_forward(work, buffers->wide, buffers->gelu, rows * WIDEN * (size_t)c);
    linear_forward(work, buffers->gelu, WIDEN * c, weights->down_w,
                   weights->down_b, x, out, c);
}

/* Puts where documents begin into the set, where every part finds it. */
static void find_documents(const struct work *work)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);

    if (work_has_cp(work)) {
        cp_attention_order(work);
        return;
    }
    LAUNCH(&work->queue, document_starts, document_args,
           blocks_of((size_t)rows, document_starts_threads),
           .offsets = work->offsets, .starts = work->set->starts,
           .n = config_offsets(config), .rows = rows);
}

void parts_forward(const struct work *work, int first, int last, const float *x)
{
    if (first == 0 && work->offsets != NULL) {
        find_documents(work);
    }
    for (int i = first; i <= last; i++) {
        const struct part *part = &work->model->parts[i];
        float *out;

        if (work_before(work, i, true) != 0) {
            return;
        }
        out = set_part_out(work->set, i);
        switch (part->kind) {
        case PART_ATTN:
            (work->model->config.model == MODEL_MLA
                 ? mla_forward
                 : attn_forward)(work, part->layer, x, out);
            break;
        case PART_MAMBA:
            mamba_forward(work, part->layer, x, out);
            break;
        case PART_MLP:
            mlp_forward(work, part->layer, x, out);
            break;
        default:
            moe_forward(work, part, x, out);
            break;
        }
        if (work_after(work, i, true) != 0) {
            return;
        }
        x = out;
    }
}

void head_forward(const struct work *work, const float *x, const int *targets,
                  const float *scale, float *loss)
{
    const struct model *model = work->model;
    const struct set *set = work->set;
    const int rows = config_rows(&model->config);

    norm_forward(work, x, work->model->config.hidden, model->norm_g,
                 model->norm_b, set->norm, set->mean, set->rstd);
    if (model->config.tied) { /* by the transposed weights */
        linear_dgrad(work, set->norm, model->config.hidden, model->head_w, NULL,
                     set->logits, VOCAB);
    } else {
        linear_forward(work, set->norm, model->config.hidden, model->head_w,
                       NO_BIAS, NULL, set->logits, VOCAB);
    }
    LAUNCH(&work->queue, cross_entropy, cross_entropy_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .logits = set->logits,
           .targets = targets, .losses = set->losses, .rows = rows,
           .vocab = VOCAB, .scale = scale);
    LAUNCH(&work->queue, mean, mean_args, 1, .x = set->losses, .mean = loss,
           .n = rows);
}
